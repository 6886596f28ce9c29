"""Images of lost power, as many as one likes: `python -m tests.power_loss --images 10000 --jobs 2`.

Without --images: as many as fit into the seconds of a whole run, or 10,000.
"""

from __future__ import annotations

import argparse
import resource
import secrets
import sys
import tempfile
import time
from pathlib import Path

from tests.power_loss.campaign import Tally, judge_again, run_campaign, run_for
from tests.power_loss.oracle import Wrong
from tests.power_loss.workloads import WORKLOADS
from tests.support import campaign


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.power_loss", description=__doc__)
    parser.add_argument("--images", type=int, default=None)
    parser.add_argument(
        "--seed", type=int, default=None, help="of the campaign (default: a new one)"
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--workload", action="append", choices=sorted(WORKLOADS))
    parser.add_argument("--keep", default=None, help="directory for images that fail")
    parser.add_argument("--again", type=Path, default=None, help="judge an image that was kept")
    given = parser.parse_args()
    if given.again is not None:
        return again(given.again)
    seed = secrets.randbits(31) if given.seed is None else given.seed
    keep = given.keep or f"{tempfile.gettempdir()}/rocketstore-crash-{seed}"
    print(f"seed {seed} (again with --seed {seed})", flush=True)
    began = time.monotonic()
    tally = Tally()
    workloads = given.workload or tuple(WORKLOADS)
    running = campaign.begin(
        "crash images", asked="" if given.images is None else f"{given.images}"
    )
    tallies = (
        run_campaign(running.count, seed, given.jobs, keep, workloads)
        if running.seconds is None
        else run_for(running.seconds, running.least, seed, given.jobs, keep, workloads)
    )
    for tally in tallies:
        running.did = tally.images.total()
        said = f"{tally.images.total()} images, {tally.wrong.total()} fail"
        print(f"{time.monotonic() - began:7.0f} s  {said}", flush=True)
    tell(tally, time.monotonic() - began)
    running.end()
    return 1 if tally.wrong else 0


def tell(tally: Tally, seconds: float) -> None:
    for name in sorted(tally.images):
        print(f"{name:24} {tally.images[name]:8} images {tally.wrong[name]:6} fail")
    for failure in tally.failures:
        print(f"\n{failure.where}\n  {failure.why[:400]}\n  kept in {failure.kept}")
    total = tally.images.total()
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu_s = sum(one.ru_utime + one.ru_stime for one in used)
    print(
        f"\n{tally.wrong.total()} of {total} images fail; {tally.runs} recorded runs, "
        f"{seconds:.0f} s, {cpu_s / max(1, total) * 1000:.1f} ms of processor an image"
    )


def again(kept: Path) -> int:
    try:
        judge_again(kept)
    except Wrong as error:
        print(error)
        return 1
    print("nothing is wrong with it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
