"""docs/format.md and the pages below it describe the files; csrc/rs_format.h is what the code does. They agree."""

from __future__ import annotations

import dataclasses
import functools
import re

import pytest

from rocketstore.log.commitlog import checkpoint
from rocketstore.log.commitlog.checkpoint import OwnCheckpoint, RocketmqTimes
from tests.support.paths import ROOT

pytestmark = pytest.mark.quick

HEADER = ROOT / "csrc" / "rs_format.h"
PAGES = [ROOT / "docs" / "format.md", *sorted((ROOT / "docs" / "format").glob("*.md"))]

#: Field of the record (2.1) -> constants whose sum is its place with IPv4 hosts and an empty body.
RECORD_FIELDS = {
    "totalSize": ["RS_AT_TOTAL_SIZE"],
    "magic": ["RS_AT_MAGIC"],
    "bodyCRC": ["RS_AT_BODY_CRC"],
    "queueId": ["RS_AT_QUEUE_ID"],
    "flag": ["RS_AT_FLAG"],
    "queueOffset": ["RS_AT_QUEUE_OFFSET"],
    "physicalOffset": ["RS_AT_PHYSICAL_OFFSET"],
    "sysFlag": ["RS_AT_SYS_FLAG"],
    "bornTimestamp": ["RS_AT_BORN_TIMESTAMP"],
    "bornHost": ["RS_AT_BORN_HOST"],
    "storeTimestamp": ["BORN", "RS_AFTER_BORN_STORE_TIMESTAMP"],
    "storeHost": ["BORN", "RS_AFTER_BORN_STORE_HOST"],
    "reconsumeTimes": ["STORE", "RS_AFTER_STORE_RECONSUME_TIMES"],
    "preparedTransactionOffset": ["STORE", "RS_AFTER_STORE_PREPARED_OFFSET"],
    "bodyLength": ["STORE", "RS_AFTER_STORE_BODY_LENGTH"],
    "body": ["STORE", "RS_AFTER_STORE_BODY"],
}
#: Section -> (prefix of the constants, {field of the table: constant}).
FIELDS = {
    "6.1": {
        "physicalOffset of the record": "RS_UNIT_AT_PHYSICAL_OFFSET",
        "size = totalSize of the record": "RS_UNIT_AT_SIZE",
        "tagsCode": "RS_UNIT_AT_TAGS_CODE",
    },
    "7.2": {
        "beginTimestamp": "RS_INDEX_AT_BEGIN_TIMESTAMP",
        "endTimestamp": "RS_INDEX_AT_END_TIMESTAMP",
        "beginPhyOffset": "RS_INDEX_AT_BEGIN_OFFSET",
        "endPhyOffset": "RS_INDEX_AT_END_OFFSET",
        "hashSlotCount": "RS_INDEX_AT_SLOT_COUNT",
        "indexCount": "RS_INDEX_AT_INDEX_COUNT",
    },
    "7.3": {
        "keyHash": "RS_ENTRY_AT_KEY_HASH",
        "physicalOffset": "RS_ENTRY_AT_PHYSICAL_OFFSET",
        "timeDiff": "RS_ENTRY_AT_TIME_DIFF",
        "previous": "RS_ENTRY_AT_PREVIOUS",
    },
    "20.3": {
        "magic": "RS_POSITIONS_AT_MAGIC",
        "wrote": "RS_POSITIONS_AT_WROTE",
        "committed": "RS_POSITIONS_AT_COMMITTED",
        "flushed": "RS_POSITIONS_AT_FLUSHED",
        "visible": "RS_POSITIONS_AT_VISIBLE",
        "dispatched": "RS_POSITIONS_AT_DISPATCHED",
        "indexed": "RS_POSITIONS_AT_INDEXED",
        "minimum": "RS_POSITIONS_AT_MINIMUM",
        "state": "RS_POSITIONS_AT_STATE",
        "pid": "RS_POSITIONS_AT_PID",
        "runId": "RS_POSITIONS_AT_RUN_ID",
        "bootId": "RS_POSITIONS_AT_BOOT_ID",
        "changes": "RS_POSITIONS_AT_CHANGES",
    },
}
#: Row of the table of constants (0) -> constants, one for each value of its hex column.
CONSTANTS = {
    "message magic V1": ["RS_MAGIC_V1"],
    "message magic V2": ["RS_MAGIC_V2"],
    "blank magic (commit log and timer log)": ["RS_MAGIC_BLANK"],
    "record, fixed part": ["RS_RECORD_FIXED"],
    "smallest record": ["RS_RECORD_SIZE_MIN"],
    "host, IPv4 / IPv6": ["RS_HOST_V4_SIZE", "RS_HOST_V6_SIZE"],
    "smallest blank": ["RS_BLANK_SIZE_MIN"],
    "longest V1 topic a reader accepts": ["RS_TOPIC_MAX_V1"],
    "longest topic the V2 writer makes": ["RS_TOPIC_MAX_V2"],
    "longest V2 topic a reader accepts": ["RS_TOPIC_MAX_V2_READ"],
    "property CRC / its digits": ["RS_RECORD_CRC_SIZE", "RS_RECORD_CRC_DIGITS"],
    "consume queue unit": ["RS_UNIT_SIZE"],
    "pre-blank size": ["RS_PRE_BLANK_SIZE"],
    "index header / slot / entry": [
        "RS_INDEX_HEADER_SIZE",
        "RS_INDEX_SLOT_SIZE",
        "RS_INDEX_ENTRY_SIZE",
    ],
    "checkpoint file": ["RS_CHECKPOINT_FILE_SIZE"],
}
#: Bit of sysFlag (2.2) -> constant.
SYS_FLAGS = {
    "compressed": "RS_FLAG_COMPRESSED",
    "multi tags": "RS_FLAG_MULTI_TAGS",
    "transaction type": "RS_FLAG_TRANSACTION",
    "born host v6": "RS_FLAG_BORN_HOST_V6",
    "store host v6": "RS_FLAG_STORE_HOST_V6",
    "need unwrap": "RS_FLAG_NEED_UNWRAP",
    "inner batch": "RS_FLAG_INNER_BATCH",
    "compression type": "RS_FLAG_COMPRESSION_TYPE",
}
#: Constants that stand in a sentence: what the sentence has to be.
SENTENCES = {
    "RS_FLAG_PREPARED": "{} prepared",
    "RS_FLAG_COMMIT": "{} commit",
    "RS_FLAG_ROLLBACK": "{} rollback",
    "RS_OWN_CHECKPOINT_FILE_SIZE": "{} bytes: two slots",
    "RS_OWN_SLOT_STRIDE": "each alone in a block of {}",
    "RS_POSITIONS_PAGE_SIZE": "{} bytes, mapped shared",
}


def defines() -> dict[str, int | str]:
    found: dict[str, int | str] = {}
    text = HEADER.read_text(encoding="utf-8")
    for name, value in re.findall(r"^#define (RS_\w+) +(\S+)", text, re.MULTILINE):
        if value.startswith('"'):
            found[name] = value.strip('"')
        else:
            found[name] = int(re.sub(r"(?i)[ul]+$", "", value), 0)
    return found


@functools.cache
def document() -> str:
    return "\n".join(page.read_text(encoding="utf-8") for page in PAGES)


def section(number: str) -> str:
    """Text between the heading of this section and the next heading."""
    text = document()
    match = re.search(rf"^##+ {re.escape(number)}\.? .*?\n(.*?)(?=^##+ |\Z)", text, re.M | re.S)
    assert match, f"docs/format.md has no section {number}"
    return match[1]


def tables(number: str) -> list[list[dict[str, str]]]:
    """Tables of a section; a row is {column: text without quotes}."""
    found: list[list[dict[str, str]]] = []
    header: list[str] = []
    for line in section(number).splitlines():
        if not line.startswith("|"):
            header = []
            continue
        cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        if not header:
            header = cells
            found.append([])
        elif not set(line) <= set("|- "):
            found[-1].append(dict(zip(header, cells, strict=False)))
    return found


def field_table(number: str) -> dict[str, str]:
    """Offset by field name, of the first table with these columns."""
    for table in tables(number):
        if table and {"offset", "field"} <= set(table[0]):
            return {row["field"]: row["offset"] for row in table}
    raise AssertionError(f"section {number} has no table of fields")


def hexadecimals(text: str) -> list[int]:
    return [int(part.replace("`", "").replace(" ", ""), 16) for part in text.split(" / ")]


def test_record_fields() -> None:
    at = {name: value for name, value in defines().items() if isinstance(value, int)}
    at["BORN"] = at["RS_AT_BORN_HOST"] + at["RS_HOST_V4_SIZE"]
    at["STORE"] = at["BORN"] + at["RS_AFTER_BORN_STORE_HOST"] + at["RS_HOST_V4_SIZE"]
    described = {row["field"]: row["offset, both IPv4"] for row in tables("2.1")[0]}
    for field, parts in RECORD_FIELDS.items():
        assert int(described[field]) == sum(at[part] for part in parts), field


@pytest.mark.parametrize("number", FIELDS)
def test_fields_of(number: str) -> None:
    known = defines()
    described = field_table(number)
    for field, name in FIELDS[number].items():
        assert int(described[field]) == known[name], f"{number} {field} is not {name}"


def test_fields_of_our_checkpoint() -> None:
    """The fields of the class in their order, each as long as the layout has it."""
    sizes = [4, 4, *[8] * 9, *[4] * 8, 16, 16, 4, 4]
    described = {field: int(at) for field, at in field_table("20.2").items()}
    assert list(described.values()) == [sum(sizes[:n]) for n in range(len(sizes) + 1)]
    names = [re.sub("[A-Z]", lambda c: "_" + c[0].lower(), field) for field in described]
    assert names[0:2] + names[-2:] == ["magic", "version", "crc", "zeros"]
    fields = [field.name.removesuffix("_ms") for field in dataclasses.fields(OwnCheckpoint)]
    assert names[2:-2] == fields
    assert checkpoint.SLOT.size == described["crc"]
    assert f"Size of a slot: {described['zeros']} bytes" in document()


def test_fields_of_rocketmqs_checkpoint() -> None:
    described = {field: int(at) for field, at in field_table("8").items()}
    assert list(described.values())[:6] == list(range(0, checkpoint.TIMES.size, 8))
    assert len(RocketmqTimes._fields) == 6


@pytest.mark.parametrize("row", CONSTANTS)
def test_constant(row: str) -> None:
    known = defines()
    described = {line["name"]: line["hex"] for line in tables("0")[0]}
    assert hexadecimals(described[row]) == [known[name] for name in CONSTANTS[row]]


def test_sys_flags() -> None:
    known = defines()
    described = {
        row["name"]: int(row["mask"], 16) for row in tables("2.2")[0] if row["name"] != "–"
    }
    assert described == {name: known[constant] for name, constant in SYS_FLAGS.items()}


@pytest.mark.parametrize("name", SENTENCES)
def test_sentence(name: str) -> None:
    assert SENTENCES[name].format(defines()[name]) in document()


def test_record_crc() -> None:
    known = defines()
    assert f"`{known['RS_RECORD_CRC_NAME']}`" in section("2.6")
    assert known["RS_RECORD_CRC_AT_DIGITS"] == len(str(known["RS_RECORD_CRC_NAME"])) + 1


def test_magics_of_our_own_files() -> None:
    known = defines()
    assert f"`{checkpoint.MAGIC[:4].hex(' ').upper()}`" in section("20.2")
    assert f"| {checkpoint.MAGIC[7]}; a reader" in section("20.2")
    spelled = int(known["RS_POSITIONS_MAGIC"]).to_bytes(8, "big").hex(" ").upper()
    assert f"`{spelled}`" in section("20.3")


def test_every_constant_is_described() -> None:
    described = {"RS_RECORD_CRC_NAME", "RS_RECORD_CRC_AT_DIGITS"}
    described |= {"RS_POSITIONS_MAGIC"}
    described |= {name for parts in RECORD_FIELDS.values() for name in parts}
    described |= {name for fields in FIELDS.values() for name in fields.values()}
    described |= {name for names in CONSTANTS.values() for name in names}
    described |= set(SYS_FLAGS.values()) | set(SENTENCES)
    assert sorted(set(defines()) - described) == []
