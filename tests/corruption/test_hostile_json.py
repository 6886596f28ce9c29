"""JSON side files that no program would write: each face serves the log, or raises a typed error, in bounded memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.process.other_process import open_small, other_process

FILES = [
    "rocketstore/store.json",
    "rocketstore/recovery.json",
    "config/consumerOffset.json",
    "config/topics.json",
    "config/delayOffset.json",
]
#: Writes each content to the file given[0] of a copy of the store, and uses each face; says what was not
#: right, then the peak of its memory in MiB.
FACES = """
import faulthandler, shutil
from pathlib import Path
from rocketstore.cli.commands.stat import facts
from rocketstore.tools import verify
faulthandler.dump_traceback_later(100, exit=True)
name = given
huge, table = "9" * 5000, '"offsetTable":{"Orders@g":{%s}}'
CONTENTS = {
    "nothing": "",
    "a list": "[]",
    "a text": '"text"',
    "null": "null",
    "NaN": '{"version":NaN,"log_file_bytes":NaN,"topicConfigTable":NaN,"offsetTable":NaN}',
    "infinity": '{"created_ms":1e999,"foreign":[[-Infinity,Infinity]],' + table % '"0":1e999' + "}",
    "deep lists": "[" * 100_000 + "]" * 100_000,
    "deep objects": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "a huge number": huge,
    "huge numbers": '{"version":1,"created_ms":' + huge + ',"foreign":[[0,' + huge + "]],"
        + table % f'"0":{huge}' + "}",
    "a huge version": '{"version":' + huge + "}",
    "a huge queue": "{" + table % f'"{huge}":1,"-1":2,"99999999999":3,"x":4' + "}",
    "numbers of 64 bits": "{" + table % f'"0":{2**63 - 1},"1":{-2**63},"2":{2**64}' + "}",
    "half a pair": '{"\\\\ud800":1,"offsetTable":{"\\\\ud800@\\\\ud800":{"0":1}}}',
    "sizes beyond all": '{"version":1,"uuid":"x","created_ms":1,"record_crc":true,"log_file_bytes":%d,'
        '"index_slots":%d,"index_entries":-1,"queue_file_bytes":0}' % (2**70, 2**40),
    "100 MB of nothing": 100 << 20,
    "100 MB of blanks": b" " * (1 << 20) * 100,
    "no UTF-8": b'{"\\xff\\xfe":"\\xc3\\x28"}',
}
def delays(store):
    assert len(store.delayed) <= 1, len(store.delayed)
    assert len(str(store.delayed.error)) < 2000, len(str(store.delayed.error))
    repr(store.delayed), store.delayed.undelivered, list(store.delayed)
def reads(store):
    assert len(list(store.consumer(TOPIC))) == 20
    store.queues(TOPIC), store.topics(system=True), store.groups(TOPIC)
def groups(store):
    with store.consumer(TOPIC, group="g", reset="earliest") as consumer:
        consumer.lag(), consumer.poll(3), consumer.commit()
def told(what, act):
    try:
        act()
    except (rocketstore.RocketStoreError, OSError) as error:
        if len(str(error)) > 2000:
            say(f"{what}: {len(str(error))} characters")
    except BaseException as error:
        say(f"{what}: {error!r:.300}")
def opened(mode, use):
    with rocketstore.open(copy, mode, **options) as store:
        use(store)
for content, data in CONTENTS.items():
    copy = Path(path + ".copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(path, copy)
    file = copy / name
    file.parent.mkdir(exist_ok=True)
    if isinstance(data, int):
        with file.open("wb") as sparse:
            sparse.truncate(data)
    else:
        file.write_bytes(data.encode() if isinstance(data, str) else data)
    for face, act in {
        "r": lambda: opened("r", reads),
        "stat": lambda: opened("r", lambda store: facts(store, copy, "g")),
        "verify": lambda: verify(copy),
        "rw": lambda: opened("rw", reads),
        "delays": lambda: opened("rw", delays),
        "group": lambda: opened("rw", groups),
    }.items():
        told(f"{name}, {content}, {face}", act)
    shutil.rmtree(copy)
# Not ru_maxrss: a process inherits that of the one that started it.
status = Path("/proc/self/status").read_text().split()
say(str(int(status[status.index("VmHWM:") + 1]) >> 10))
"""


@pytest.mark.parametrize("name", FILES)
def test_a_hostile_side_file(tmp_path: Path, name: str) -> None:
    with open_small(tmp_path / "s") as store:
        for number in range(20):
            store.writer("Orders", queue_id=number % 2).put(b"%d" % number)
        store.writer("Orders").put(b"later", delay_level=18)
        with store.consumer("Orders", group="g") as consumer:
            consumer.poll(5)
            consumer.commit()
    with other_process(FACES, tmp_path / "s", given=name) as other:
        *wrong, peak = other.rest().decode().splitlines()
        other.ends()
    assert wrong == []
    # What it wrote itself is 100 MiB of it.
    assert int(peak) < 100 + 256, f"{peak} MiB"
