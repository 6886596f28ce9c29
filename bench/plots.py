"""Results of `bench.peers` as a picture, an SVG that is the same for the same results.

python -m bench.plots bench/results/peers.json docs/img/peers.svg
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["main", "plot_peers"]

OURS = "rocketstore"
COLOURS = ("#d9822b", "#2b6cb0", "#4f8a5b")
WIDTH, ROW_HEIGHT = 9.0, 0.42


def classes(results: Sequence[dict[str, Any]]) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """Results by what is promised and messages a call; what a kill loses is with "os"."""
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in results:
        durability = "disk" if row["durability"] == "disk" else "os"
        found.setdefault((durability, row["batch"]), []).append(row)
    return dict(sorted(found.items(), key=lambda item: (item[0][0] == "disk", item[0][1])))


def plot_peers(results: Sequence[dict[str, Any]], target: Path) -> None:
    """One panel a class, a bar a case and kind of bodies, the median of the rounds on a scale of powers of ten."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot

    mpl.rcParams.update({"svg.hashsalt": OURS, "font.size": 9, "svg.fonttype": "none"})
    panels = classes(results)
    names = {key: list(dict.fromkeys(r["case"] for r in rows)) for key, rows in panels.items()}
    kinds = list(dict.fromkeys(row["bodies"] for row in results))
    step = 0.8 / len(kinds)
    found = [row["messages_per_s"] for row in results]
    heights = [len(cases) for cases in names.values()]
    figure, axes = pyplot.subplots(
        len(panels),
        figsize=(WIDTH, ROW_HEIGHT * (sum(heights) + 2.5 * len(panels))),
        height_ratios=heights,
        sharex=True,
        squeeze=False,
        layout="constrained",
    )
    for axis, (key, rows) in zip(axes.flat, panels.items(), strict=True):
        for number, kind in enumerate(kinds):
            rates = {r["case"]: r["messages_per_s"] for r in rows if r["bodies"] == kind}
            shift = (number - (len(kinds) - 1) / 2) * step
            places = [-place - shift for place in range(len(names[key]))]
            values = [rates.get(name, 0.0) for name in names[key]]
            colour = COLOURS[number % len(COLOURS)]
            axis.barh(places, values, step * 0.95, color=colour, label=kind)
        axis.set_yticks([-place for place in range(len(names[key]))], names[key])
        for label in axis.get_yticklabels():
            label.set_fontweight("bold" if label.get_text().startswith(OURS) else "normal")
        calls = "one message a call" if key[1] == 1 else f"{key[1]} messages a call"
        axis.set_title(f"durability {key[0]}, {calls}", loc="left")
        axis.set_xscale("log")
        axis.set_xlim(min(found) / 2, max(found) * 1.5)
        axis.grid(axis="x", alpha=0.3)
    axes.flat[0].legend(loc="lower right")
    axes.flat[-1].set_xlabel("messages a second")
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, metadata={"Date": None})
    pyplot.close(figure)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.plots", description=__doc__)
    parser.add_argument("results", type=Path, help="the JSON file of bench.peers")
    parser.add_argument("target", type=Path, help="the SVG file")
    given = parser.parse_args(words)
    plot_peers(json.loads(given.results.read_text())["results"], given.target)


if __name__ == "__main__":
    main()
