"""Wrong bytes that agree with themselves: only RocketMQ's own can tell, planted one at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.seeded_faults.planting import ROOT, Fault, caught, plant

pytestmark = [pytest.mark.proof, pytest.mark.java]

SWAPPED = "(int64_t)__builtin_bswap64((uint64_t)"
FAULTS = (
    Fault(
        "little_endian_queue_unit",
        "csrc/rs_queue_file.h",
        (
            (
                "(int64_t)rs_read_once(rs_load64(at + RS_UNIT_AT_PHYSICAL_OFFSET))",
                f"{SWAPPED}rs_read_once(rs_load64(at + RS_UNIT_AT_PHYSICAL_OFFSET)))",
            ),
            (
                "rs_store64s(at + RS_UNIT_AT_PHYSICAL_OFFSET, unit.physical_offset)",
                f"rs_store64s(at + RS_UNIT_AT_PHYSICAL_OFFSET, {SWAPPED}unit.physical_offset))",
            ),
        ),
    ),
    Fault(
        "crc_not_masked",
        "csrc/rs_record.c",
        (
            (
                "rs_crc32_copy(kernel, body_at, body.bytes, body.size) & 0x7FFFFFFFu;",
                "rs_crc32_copy(kernel, body_at, body.bytes, body.size);",
            ),
        ),
    ),
    Fault(
        "key_hash_without_the_topic",
        "csrc/rs_index_file.c",
        (("int32_t hash = rs_java_hash(topic);", "int32_t hash = topic.size ? 0 : 1;"),),
    ),
    Fault(
        "blank_one_byte_short",
        "csrc/rs_log_file.c",
        (("rs_store32(blank, (uint32_t)left);", "rs_store32(blank, (uint32_t)left - 1);"),),
    ),
    Fault(
        "tag_hash_over_bytes",
        "csrc/rs_properties.c",
        (
            (
                "    return rs_java_hash(tags);",
                "    uint32_t hash = 0;\n"
                "    for (size_t n = 0; n < tags.size; n++)\n"
                "        hash = hash * 31 + tags.bytes[n];\n"
                "    return (int32_t)hash;",
            ),
        ),
    ),
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_planted_fault_is_caught(fault: Fault, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    plant(fault, tree)
    (tree / "build").mkdir(exist_ok=True)
    oracle = ROOT / "build" / "interop"
    oracle.mkdir(parents=True, exist_ok=True)  # where no other test of interop has built it yet
    (tree / "build" / "interop").symlink_to(oracle)
    said = caught(tree, ["-m", "java", "-k", "5.3.3", "tests/interop/test_bytes.py"])
    assert "AssertionError" in said or "assert " in said
