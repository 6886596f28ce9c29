"""Faults of the verdicts of `verify`, `ship`, `stat` and `query`: nothing is called well that is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.seeded_faults.planting import Fault, caught, plant

pytestmark = pytest.mark.proof

VERIFY = "rocketstore/tools/_verify"
API = "tests/api/tools/test_verify"
PARTS = ("tests/cli/test_one_bad_part.py", "-k", "commands and (body or segment)")
BLOCKED = ("tests/cli/test_one_bad_part.py", "-k", "alone or stays or loses or next_file")
CRC = "BOTH_CHECKSUMS = VERIFY_BODY_CRC | VERIFY_RECORD_CRC\n"
OK = "        return self.fault_count == 0\n"

#: Faults whose tests need an optional package, without which they are skipped.
NEEDS = {"ship_leaves_a_damaged_segment_out_without_a_word": "pyarrow"}
#: Each fault, and where the tests are that catch it.
FAULTS = (
    (
        Fault(
            "verify_checks_no_record_crc",
            f"{VERIFY}/log.py",
            ((CRC, "BOTH_CHECKSUMS = VERIFY_BODY_CRC\n"),),
        ),
        (f"{API}.py",),
    ),
    (
        Fault(
            "verify_counts_no_lost_message",
            f"{VERIFY}/losses.py",
            (
                (
                    "            lost.add(number)\n            losses.counts.add(",
                    "            print(",
                ),
            ),
        ),
        (f"{API}_messages.py",),
    ),
    (
        Fault(
            "verify_compares_no_queue_with_the_log",
            f"{VERIFY}/missing.py",
            (("        if one.count > wrong:\n", "        if False:\n"),),
        ),
        (f"{API}_messages.py",),
    ),
    (
        Fault(
            "verify_lets_units_wait_that_were_on_the_disk",
            f"{VERIFY}/waiting.py",
            (("physical_offset >= dispatched,", "physical_offset >= planned.dispatch_start,"),),
        ),
        (f"{API}_messages.py",),
    ),
    (
        Fault(
            "an_index_without_a_file_in_between_is_believed",
            "rocketstore/engine/open_marks.py",
            ((" or has_gaps(found.log, index):", ":"),),
        ),
        (f"{API}_keys.py",),
    ),
    (
        Fault(
            "verify_names_no_hidden_message",
            "rocketstore/tools/verify.py",
            (("hidden_messages=findings.hidden,", "hidden_messages=(),"),),
        ),
        (f"{API}_messages.py",),
    ),
    (
        Fault(
            "verify_counts_no_key_without_an_entry",
            f"{VERIFY}/keys.py",
            (("    if not keys.count:\n", "    if True:\n"),),
        ),
        (f"{API}_keys.py",),
    ),
    (
        Fault(
            "faults_of_derived_files_are_well",
            "rocketstore/tools/report.py",
            ((OK, '        return not {"log", "lost"} & set(self.kinds)\n'),),
        ),
        (f"{API}_messages.py", f"{API}_keys.py"),
    ),
    (
        Fault(
            "verify_ends_with_0",
            "rocketstore/cli/commands/verify.py",
            (("exit_codes.OK if report.ok else exit_codes.DAMAGED", "exit_codes.OK"),),
        ),
        PARTS,
    ),
    (
        Fault(
            "verify_passes_over_what_keeps_a_broker_from_starting",
            f"{VERIFY}/broker.py",
            (("        elif parse_segment_name(entry.name) is None:\n", "        elif False:\n"),),
        ),
        (f"{API}.py",),
    ),
    (
        Fault(
            "verify_believes_cut_side_files",
            f"{VERIFY}/broker.py",
            (("    if not path.exists() or isinstance", "    if True or isinstance"),),
        ),
        (f"{API}.py",),
    ),
    (
        Fault(
            "ship_leaves_a_damaged_segment_out_without_a_word",
            "rocketstore/shipping.py",
            (("                bad[start] = without_frames(error)\n", ""),),
        ),
        ("tests/archive/test_damage.py",),
    ),
    (
        Fault(
            "stat_ends_with_0_where_its_open_found_damage",
            "rocketstore/cli/commands/stat.py",
            (("    if lost or unread or", "    if unread or"),),
        ),
        PARTS,
    ),
    (
        Fault(
            "checkpoints_speak_of_units_that_a_blocked_queue_lacks",
            "rocketstore/log/dispatch/dispatcher.py",
            (("        if self._queues.blocked.places:\n", "        if False:\n"),),
        ),
        BLOCKED,
    ),
    (
        Fault(
            "readers_beside_a_writer_see_a_short_queue",
            "rocketstore/log/follow/follower.py",
            (("        self._blocked.check(topic, queue_id)\n", ""),),
        ),
        BLOCKED,
    ),
    (
        Fault(
            "the_copy_of_a_broker_stays_old",
            "rocketstore/consuming/consumer_offsets.py",
            (("            self._keep_copy()\n            write", "            write"),),
        ),
        ("tests/consuming/test_consumer_offsets.py",),
    ),
    (
        Fault(
            "query_leaves_a_damaged_answer_out_without_a_word",
            "rocketstore/log/read/query.py",
            (("            on_damage(damage)\n", "            pass\n"),),
        ),
        ("tests/log/read/test_query.py",),
    ),
)


@pytest.mark.parametrize(("fault", "tests"), FAULTS, ids=[fault.id for fault, _ in FAULTS])
def test_planted_fault_is_caught(fault: Fault, tests: tuple[str, ...], tmp_path: Path) -> None:
    if fault.id in NEEDS:
        pytest.importorskip(NEEDS[fault.id], reason="its tests need it: make arrow")
    plant(fault, tmp_path / "tree")
    caught(tmp_path / "tree", [*tests, "-x"])
