"""Writes a store with RocketMQ and what has to be served of it, as tests/vectors/stores holds them.

python -m tests.interop.make_reference_store 5.5.1 tags-551 tags-crashed-551
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import sys
import tarfile
import tempfile
import zlib
from pathlib import Path
from typing import Any, Final

from tests.interop.messages import Sent
from tests.interop.oracle import Oracle
from tests.interop.views import View, of_oracle
from tests.support.paths import STORES

CONFIG: Final[dict[str, Any]] = {
    "mappedFileSizeCommitLog": 32768,
    "mappedFileSizeConsumeQueue": 600,
    "maxHashSlotNum": 64,
    "maxIndexNum": 300,
}
#: Files of RocksDB that name directories of the machine that wrote the store; it makes them again.
NOT_KEPT: Final = ("LOG*", "OPTIONS*")


def messages(rng: random.Random) -> list[Sent]:
    found = []
    for n in range(180):
        properties = [("KEYS", f"k{n} all"), ("UNIQ_KEY", f"{n:032X}")]
        if n % 3:
            properties.append(("TAGS", ("paid", "täg", "Aa", "BB")[n % 4]))
        rng.shuffle(properties)
        body = rng.randbytes(rng.choice([0, 1, 40, 300]))
        topic = ("orders", "payments", "%RETRY%billing")[n % 3]
        sent = Sent(topic=topic, queue_id=n % 2, body=body, properties=tuple(properties))
        found.append(sent)
    return found


def acknowledged(sent: Sent, answer: dict[str, Any]) -> dict[str, Any]:
    return {
        "topic": sent.topic,
        "queue_id": sent.queue_id,
        "flag": sent.flag,
        "sys_flag": sent.sys_flag,
        "born_ts": sent.born_timestamp_ms,
        "born_host": sent.born_host,
        "store_host": sent.store_host,
        "reconsume": sent.reconsume_times,
        "prepared_offset": sent.prepared_transaction_offset,
        "body_len": len(sent.body),
        "body_sha1": hashlib.sha1(sent.body).hexdigest(),
        "body_crc": zlib.crc32(sent.body) & 0x7FFFFFFF,
        "properties": dict(sent.properties),
        "physical_offset": answer["physical_offset"],
        "size": answer["size"],
        "queue_offset": answer["queue_offset"],
        "msg_id": answer["message_id"],
        "store_ts": answer["store_timestamp_ms"],
    }


def expectation(acked: list[dict[str, Any]], view: View) -> dict[str, Any]:
    """What has to be served: the tags codes are those that RocketMQ told."""
    keys: dict[tuple[str, str], list[int]] = {}
    for record in acked:
        words = [*record["properties"]["KEYS"].split(), record["properties"]["UNIQ_KEY"]]
        for word in words:
            keys.setdefault((record["topic"], word), []).append(record["physical_offset"])
    codes = {at: message["tags_code"] for at, message in view.messages().items()}
    return {
        "first_log_offset": 0,
        "slots": [
            [r["topic"], r["queue_id"], r["queue_offset"], at, codes[at]]
            for r in acked
            for at in [r["physical_offset"]]
        ],
        "unqueued": [],
        "index": [[topic, key, at] for (topic, key), at in keys.items()],
    }


def keep(root: Path, name: str, version: str, must: dict[str, Any], acked: list[Any]) -> None:
    for names in NOT_KEPT:
        for file in (root / "rocksdbstore").glob(names):
            file.unlink()
    with tarfile.open(STORES / f"{name}.tar.xz", "w:xz") as archive:
        for path in sorted(root.iterdir()):
            archive.add(path, path.name)
    crashed = (root / "abort").exists()
    told = {
        "name": name,
        "version": version,
        "tests": "tags, whose entries the index of 5.4 and later has; "
        + ("the process was halted" if crashed else "clean stop"),
        "note": "",
        "config": CONFIG,
        "damaged": False,
        "abort_file": crashed,
        "must": must,
        "may": [],
        "either": [],
        "must_not": {"damaged": [], "stale": []},
        "acked": acked,
        "dropped_earlier": [],
        "refused": [],
    }
    text = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
    (STORES / f"{name}.expect.json").write_text(text + "\n", encoding="utf-8")


def main(version: str, clean: str, crashed: str) -> None:
    with tempfile.TemporaryDirectory() as folder, Oracle(version) as oracle:
        root, image = Path(folder) / "store", Path(folder) / "image"
        with oracle.open(root, CONFIG) as theirs:
            sent = messages(random.Random(551))
            answers = theirs.put([one.for_oracle() for one in sent])
            theirs.settle()
            view = of_oracle(theirs.dump())
            shutil.copytree(root, image)
        acked = [acknowledged(*pair) for pair in zip(sent, answers, strict=True)]
        must = expectation(acked, view)
        for path, name in ((root, clean), (image, crashed)):
            keep(path, name, version, must, acked)


if __name__ == "__main__":
    main(*sys.argv[1:])
