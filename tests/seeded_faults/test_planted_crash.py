"""Faults that images of lost power have to catch, planted one at a time."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.seeded_faults.planting import Fault, plant
from tests.support import campaign

pytestmark = [
    pytest.mark.proof,
    pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler"),
]

FLUSHER = "rocketstore/log/commitlog/flusher.py"
GROUP_COMMIT = "rocketstore/_native/append/group_commit.pyx"
COMMITS = "rocketstore/consuming/commit_journal.py"
JOURNAL = "journal of commits"
#: Some faults show in a rare order only: more images are taken until one fails, up to the most.
IMAGES = 640
IMAGES_MAX = 16_000

#: Each with the workloads in which it matters. The last five are faults that were there.
FAULTS = (
    (
        Fault(
            "no_sync",
            "rocketstore/_native/os/durable_write.pyx",
            (
                ("zero_count, offset, RWF_DSYNC)", "zero_count, offset, 0)"),
                ("    return sync_c(fd) if result == 0 else result\n", "    return result\n"),
            ),
        ),
        ("single", "threads"),
    ),
    (
        Fault(
            "one_page_left_out",
            FLUSHER,
            (
                (
                    "segment.sync(low - start, high - start)",
                    "segment.sync(low - start, max(low, high - 4096) - start)",
                ),
            ),
        ),
        ("system",),
    ),
    (
        Fault(
            "written_taken_for_synced",
            "rocketstore/log/layout/positions_page.py",
            (("(positions.run_id, positions.flushed)", "(positions.run_id, positions.wrote)"),),
        ),
        ("failed sync",),
    ),
    (
        Fault(
            "too_little_written_again",
            "rocketstore/log/recovery/repair.py",
            (("self._synced - BLOCK_BYTES)", "self._synced + BLOCK_BYTES)"),),
        ),
        ("failed sync",),
    ),
    (
        Fault(
            "blocks_in_use_given_back",
            "rocketstore/log/mapped_files/segment_blocks.py",
            (("    begin = -(-used // step) * step\n", "    begin = used // step * step\n"),),
        ),
        ("single", "system"),
    ),
    (
        Fault(
            "stores_behind_the_blocks",
            "rocketstore/log/mapped_files/segment_blocks.py",
            (("        if allocated(fd, begin, end):\n", "        if begin < end:\n"),),
        ),
        ("full disk",),
    ),
    (
        Fault(
            "no_directory_sync",
            "rocketstore/log/mapped_files/new_file.py",
            (
                (
                    "            if durable:\n                syscalls.sync_directory",
                    "            if False:\n                syscalls.sync_directory",
                ),
            ),
        ),
        ("single", "system"),
    ),
    (
        Fault(
            "queue_directories_not_synced",
            "rocketstore/log/queues/directories.py",
            (("                syscalls.sync_directory(os.fspath(parent))\n", ""),),
        ),
        ("single",),
    ),
    (
        Fault(
            "first_files_not_synced",
            "rocketstore/log/queues/queue_preallocator.py",
            (("                new.sync()\n", "                pass\n"),),
        ),
        ("many queues",),
    ),
    (
        Fault(
            "retry_after_a_failed_sync",
            FLUSHER,
            (
                (
                    "            self._flush()\n            self._live.settle",
                    "            try:\n"
                    "                self._flush()\n"
                    "            except OSError:\n"
                    "                self._flush()\n"
                    "            self._live.settle",
                ),
            ),
        ),
        ("failed sync",),
    ),
    (
        Fault(
            "position_moved_before_the_sync",
            GROUP_COMMIT,
            (
                (
                    "        began = now_ns()\n        zero_count = ",
                    "        began = now_ns()\n"
                    "        self.publish(target)\n"
                    "        self.moved()\n"
                    "        zero_count = ",
                ),
            ),
        ),
        ("threads",),
    ),
    (
        Fault(
            "truncation_in_memory_only",
            "rocketstore/log/recovery/repair.py",
            (("                syscalls.pwrite(fd, bytes(count), position)\n", ""),),
        ),
        ("system", "batches in the system"),
    ),
    (
        Fault(
            "checkpoint_before_the_sync",
            "rocketstore/log/commitlog/checkpointer.py",
            (
                (
                    "                queues = self._sync_queues()\n",
                    "                queues = True\n",
                ),
            ),
        ),
        ("single", "system"),
    ),
    (
        Fault(
            "journal_says_merged_before_the_file_is_durable",
            "rocketstore/consuming/consumer_offsets.py",
            (
                (
                    "            self._keep_copy()\n"
                    "            write_state_file(self._layout, self._layout.consumer",
                    "            self._journal.after_merge(merged)\n"
                    "            self._keep_copy()\n"
                    "            write_state_file(self._layout, self._layout.consumer",
                ),
            ),
        ),
        (JOURNAL,),
    ),
    (
        Fault(
            "commit_not_synced",
            COMMITS,
            (
                (
                    "        if sync:\n            self.sync()",
                    "        if False:\n            self.sync()",
                ),
            ),
        ),
        (JOURNAL,),
    ),
    (
        Fault(
            "torn_commit_called_damage",
            COMMITS,
            (("if n < self._durable or ", "if n < self.end or "),),
        ),
        (JOURNAL,),
    ),
    (
        Fault(
            "merged_commits_count_again",
            "rocketstore/consuming/offset_tables.py",
            (("    first, doubts = mark or journal.merged, []\n", "    first, doubts = 0, []\n"),),
        ),
        (JOURNAL,),
    ),
    (
        Fault(
            "queue_names_not_synced",
            "rocketstore/log/queues/queue_files.py",
            (("        self.next_files.sync_names()\n", ""),),
        ),
        ("single", "trimmed in the system"),
    ),
    (
        Fault(
            "durable_offset_before_the_sync",
            "rocketstore/log/commitlog/checkpointer.py",
            (
                (
                    "flushed = self._commit_log.positions.flushed\n        best",
                    "flushed = self._commit_log.positions.wrote\n        best",
                ),
            ),
        ),
        ("system",),
    ),
    (
        Fault(
            "island_resurrected",
            "rocketstore/log/recovery/walk.py",
            (
                (
                    "            self._add_valid_runs(at + 1)\n            return None",
                    "            self._add_valid_runs(at + 1)\n            return following",
                ),
            ),
        ),
        ("system",),
    ),
    (
        Fault(
            "unit_in_the_page_cache_not_synced",
            "rocketstore/_native/dispatch/dispatch_loop.pyx",
            (
                (
                    "        if not same or n < entry.dirty_from or n >= entry.next_offset:\n"
                    "            rs_unit_store(at, unit)\n"
                    "        if n < entry.dirty_from:",
                    "        if not same:\n"
                    "            rs_unit_store(at, unit)\n"
                    "        if not same and n < entry.dirty_from:",
                ),
            ),
        ),
        ("single",),
    ),
    (
        Fault(
            "dispatched_within_a_record",
            "rocketstore/log/commitlog/checkpointer.py",
            (
                (
                    "dispatched = min(dispatched_now, end)",
                    "dispatched = min(dispatched_now, positions.flushed)",
                ),
            ),
        ),
        ("system",),
    ),
)


def failing_images(tree: Path, workloads: tuple[str, ...], seed: int, images: int) -> int:
    """How many of so many images fail in a planted tree."""
    chosen = [word for name in workloads for word in ("--workload", name)]
    command = [
        sys.executable,
        "-m",
        "tests.power_loss",
        "--images",
        str(images),
        "--seed",
        str(seed),
    ]
    run = subprocess.run(
        [*command, "--keep", str(tree / "kept"), *chosen],
        cwd=tree,
        env={**campaign.without(os.environ), "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=False,
    )
    counted = re.search(r"^(\d+) of (\d+) images fail", run.stdout, re.MULTILINE)
    assert counted is not None, run.stdout + run.stderr
    assert int(counted[2]) >= images
    return int(counted[1])


@pytest.mark.parametrize(("fault", "workloads"), FAULTS, ids=[fault.id for fault, _ in FAULTS])
def test_planted_fault_fails_images(
    fault: Fault, workloads: tuple[str, ...], tmp_path: Path, random_seed: int
) -> None:
    """Recovery finds promises broken; how many images show it is printed."""
    plant(fault, tmp_path / "tree")
    failing = images = 0
    while not failing and images < IMAGES_MAX:
        seed = random_seed % (1 << 31) + images
        failing += failing_images(tmp_path / "tree", workloads, seed, IMAGES)
        images += IMAGES
    print(f"{fault.id}: {failing} of {images} images fail")
    assert failing > 0
