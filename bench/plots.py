"""Results of `bench.peers` as a picture, an SVG that is the same for the same results.

python -m bench.plots build/bench/peers.json docs/peers.svg
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["main", "plot_peers"]

OURS = "rocketstore"
COLOURS = {100: "#d9822b", 1024: "#2b6cb0"}
WIDTH, ROW_HEIGHT = 9.0, 0.34


def classes(results: Sequence[dict[str, Any]]) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """Results by what is promised and messages a call; what only outlives no kill stands with "os"."""
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in results:
        durability = "disk" if row["durability"] == "disk" else "os"
        found.setdefault((durability, row["batch"]), []).append(row)
    return dict(sorted(found.items(), key=lambda item: (item[0][0] == "disk", item[0][1])))


def plot_peers(results: Sequence[dict[str, Any]], target: Path) -> None:
    """One panel a class, one pair of bars a case, the median of the rounds on a scale of powers of ten."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot

    mpl.rcParams.update({"svg.hashsalt": OURS, "font.size": 9, "svg.fonttype": "none"})
    panels = classes(results)
    names = {key: list(dict.fromkeys(r["case"] for r in rows)) for key, rows in panels.items()}
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
        for number, (size, colour) in enumerate(COLOURS.items()):
            rates = {r["case"]: r["messages_per_s"] for r in rows if r["size"] == size}
            places = [place - 0.2 + 0.4 * number for place in range(len(names[key]))]
            values = [rates.get(name, 0.0) for name in names[key]]
            axis.barh([-place for place in places], values, 0.38, color=colour, label=f"{size} B")
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
