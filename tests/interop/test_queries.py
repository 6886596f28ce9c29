"""Questions about one store put to both: by key, by tag, by time, by SQL."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest

import rocketstore
from rocketstore._native.format.codec import encode_properties
from rocketstore.errors import FilterSyntaxError
from rocketstore.filters import program_of, sql_filter
from rocketstore.filters.compare import UndecidedError
from tests.interop.exchange import put_ours, put_theirs, they_write, we_write
from tests.interop.filter_oracle import Verdict, verdicts
from tests.interop.messages import SMALL, Sent, config_of
from tests.interop.oracle import Oracle, OracleStore, since
from tests.interop.views import Tally, of_oracle, of_ours
from tests.support.filter_expressions import broken, expression, message

pytestmark = pytest.mark.java


#: Of a queue file.
UNITS: int = SMALL["mappedFileSizeConsumeQueue"] // 20


def test_index_files_that_roll_and_keys_that_collide(
    oracle: Oracle, tally: Tally, tmp_path: Path
) -> None:
    """The same answers; ours without the messages of another key with the same hash."""
    keys = ["Aa", "BB", "Aa BB", "k1 k2 k3", "k1 k1", "ключ", "AaAa", "BBBB", "AaBB"]
    steps = [Sent(body=b"%d" % n, properties=(("KEYS", keys[n % 9]),)) for n in range(400)]
    for path, write in ((tmp_path / "theirs", they_write), (tmp_path / "ours", we_write)):
        view = write(oracle, tally, path, steps)
        assert len(list((path / "index").iterdir())) > 1
        times = [m["store_timestamp_ms"] for m in view.messages().values()]
        middle = sorted(times)[len(times) // 2]
        with (
            oracle.open(path, SMALL) as theirs,
            rocketstore.open(path, "r", config=config_of(SMALL)) as ours,
        ):
            for key in sorted({word for text in keys for word in text.split()}):
                for begin, end in ((0, 1 << 60), (middle, max(times))):
                    answer = ours.query("Orders", key, begin=begin, end=end, limit=10_000)
                    mine = {m.physical_offset: m.store_timestamp_ms for m in answer}
                    found = {
                        m["physical_offset"]: m for m in theirs.query("Orders", key, begin, end)
                    }
                    for at, message in list(found.items()):
                        words = message["properties"]["KEYS"].split()
                        if key not in words or not begin <= message["store_timestamp_ms"] <= end:
                            tally.know("K-59")  # another key with the hash, or the same second
                            del found[at]
                    for at, when in list(mine.items()):
                        if at not in found and when - begin < 1000:
                            tally.know("K-59")  # its second began before the window
                            del mine[at]
                    assert sorted(mine) == sorted(found), key
                    tally.messages += len(answer)


def test_the_newest_of_a_key(oracle: Oracle, tally: Tally, tmp_path: Path) -> None:
    """A limit takes the newest, across index files that roll; the unique id is a key as well."""
    path = tmp_path / "store"
    steps = [
        Sent(
            body=b"%d" % n,
            properties=(("KEYS", "all odd" if n % 2 else "all"), ("UNIQ_KEY", f"{n:032X}")),
        )
        for n in range(250)
    ]
    with rocketstore.open(path, config=config_of(SMALL)) as ours:
        put_ours(ours, steps[:125])
    tally.scenarios += 1
    with oracle.open(path, SMALL) as theirs:
        put_theirs(theirs, steps[125:])
        theirs.settle()
        assert len(list((path / "index").iterdir())) > 2
        with rocketstore.open(path, "r", config=config_of(SMALL)) as ours:
            for key, limit in product(
                ("all", "odd", f"{7:032X}", "none"), (1, 5, 64, 125, 250, 1000)
            ):
                found = theirs.query("Orders", key, 0, 1 << 60, limit)
                offsets = sorted((m["physical_offset"] for m in found), reverse=True)
                answer = ours.query("Orders", key, limit=limit)
                assert [m.physical_offset for m in answer] == offsets, (key, limit)
                tally.messages += len(offsets)
            assert len(ours.query("Orders", "all", limit=1000)) == 250
        for topic in ("Other", "Order"):
            assert theirs.query(topic, "all", 0, 1 << 60) == []


def test_tags_that_collide(oracle: Oracle, tally: Tally, tmp_path: Path) -> None:
    """Their units hold the same codes; a consumer of ours has the right ones of two with one code."""
    path = tmp_path / "store"
    tags = ("Aa", "BB", "", "täg 🚀", "a||b", "*")
    steps = [
        Sent(body=tag.encode(), properties=(("TAGS", tag),) if tag else ()) for tag in tags * 20
    ]
    with oracle.open(path, SMALL) as theirs:
        put_theirs(theirs, steps)
        theirs.settle()
        view = of_oracle(theirs.dump())
    with rocketstore.open(path, config=config_of(SMALL)) as ours:
        put_ours(ours, steps)
    with rocketstore.open(path, "r", config=config_of(SMALL)) as ours:
        own = of_ours(ours)
        for wanted in (["Aa"], ["BB"], ["Aa", "BB"], ["täg 🚀", "Aa"], ["a||b"]):
            found = [message.body.decode() for message in ours.consumer("Orders", tags=wanted)]
            assert found == [tag for tag in tags * 40 if tag in wanted]
    for queue_offset, one in view.queues["Orders", 0].items():
        assert own.queues["Orders", 0][queue_offset + 120]["tags_code"] == one["tags_code"]
    with oracle.open(path, SMALL) as theirs:
        tally.same(of_oracle(theirs.dump()), own)


def first_at_or_after(times: Sequence[int], when: int) -> int:
    return sum(time < when for time in times)


def last_at_or_before(times: Sequence[int], when: int) -> int:
    return sum(time <= when for time in times) - 1


def near(times: Sequence[int], when: int) -> int:
    """What RocketMQ 4.9 answers within one queue file: one of that very time, else the nearer neighbour."""
    low, high = 0, len(times) - 1
    left = right = -1
    while low <= high:
        middle = (low + high) // 2
        if times[middle] == when:
            return middle
        if times[middle] > when:
            high, right = middle - 1, middle
        else:
            low, left = middle + 1, middle
    if left < 0 or right < 0:
        return max(left, right)
    return right if when - times[left] > times[right] - when else left


def ask_both(
    theirs: OracleStore, ours: rocketstore.Store, when: int
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Lower and upper answer of each."""
    lower, upper = (ours.offset_at("Orders", 0, when, b) for b in ("lower", "upper"))
    told = (theirs.offset_by_time("Orders", 0, when, upper=upper) for upper in (False, True))
    first, last = told
    return (first, last), (lower, upper)


@pytest.mark.parametrize("calls", [10, 30])
def test_offsets_by_time(
    oracle: Oracle, version: str, tally: Tally, tmp_path: Path, calls: int
) -> None:
    """In one queue file and in three. Ours are exact; 5.3 has both bounds, 4.9 an answer near the time."""
    path = tmp_path / "store"
    with oracle.open(path, SMALL) as theirs:
        for n in range(calls):
            theirs.put([Sent(body=b"%d" % n).for_oracle()] * 3)
        theirs.settle()
        queue = of_oracle(theirs.dump()).queues["Orders", 0]
        times = [message["store_timestamp_ms"] for message in queue.values()]
        assert len(times) == 3 * calls
        tally.scenarios += 1
        with rocketstore.open(path, "r", config=config_of(SMALL)) as ours:
            for when in sorted({time + step for time in times for step in (-1, 0, 1)}):
                told, mine = ask_both(theirs, ours, when)
                exact = (first_at_or_after(times, when), last_at_or_before(times, when))
                assert mine == exact
                tally.messages += 2
                if since(version, "5"):
                    assert told == (exact[0], max(0, exact[1]))
                    if told != exact:
                        tally.know("Q-46")
                    continue
                assert told[0] == told[1]
                # Of several files it takes one by its modification time.
                files = range(0, len(times), UNITS)
                assert told[0] in {at + near(times[at : at + UNITS], when) for at in files}
                if told != exact:
                    tally.know("Q-45")


EXPRESSIONS = 1000
MESSAGES = 60
#: A double that RocketMQ calls too small.
ZERO = re.compile(r"(?<![0-9.])0+\.0*(?![0-9])|(?<![0-9])\.0+(?![0-9])")


def ours(text: str, messages: list[dict[str, str]]) -> list[Verdict] | str:
    """As the oracle answers; native code agrees wherever it is sure."""
    try:
        found = sql_filter(text)
    except FilterSyntaxError:
        return "refused"
    program = program_of(found)
    answers: list[Verdict] = []
    for properties in messages:
        try:
            answers.append(found._evaluate(properties.get))
        except UndecidedError:
            answers.append("error")
        native = program.verdict(encode_properties(properties))
        assert native in (answers[-1], "unsure"), (text, properties)
    return answers


def test_the_same_verdicts(version: str, rng: random.Random) -> None:
    """Of random expressions on random messages: true, false, unknown and exceptions."""
    messages = [message(rng) for _ in range(MESSAGES)]
    texts = [expression(rng) for _ in range(EXPRESSIONS)]
    answers = verdicts(version, texts, messages)
    refused = 0
    for text, answer in zip(texts, answers, strict=True):
        mine = ours(text, messages)
        assert mine == answer, text
        refused += answer == "refused"
    assert refused < EXPRESSIONS // 10
    print(f"\nRocketMQ {version}: {EXPRESSIONS} expressions on {MESSAGES} messages, all equal")


def test_what_rocketmq_refuses_is_refused(version: str, rng: random.Random) -> None:
    """RocketMQ does not read what follows a whole expression; here that is refused."""
    messages = [message(rng) for _ in range(10)]
    texts = [broken(rng) for _ in range(EXPRESSIONS)]
    answers = verdicts(version, texts, messages)
    counts = {"both": 0, "neither": 0, "ours": 0}
    for text, answer in zip(texts, answers, strict=True):
        mine = ours(text, messages)
        if mine == "refused":
            counts["both" if answer == "refused" else "ours"] += 1
        else:
            assert mine == answer, text
            counts["neither"] += 1
    assert min(counts.values()) > 0, counts


def test_known_differences(version: str) -> None:
    """A text after the expression, which RocketMQ drops, and 0.0, which it calls too small."""
    texts = ["price = 10 AND region = 'eu' price", "price = 007", "price > 0.0"]
    properties = [{"price": "10", "region": "eu"}]
    assert verdicts(version, texts, properties) == [[True], [False], "refused"]
    assert [ours(text, properties) for text in texts] == ["refused", "refused", [True]]
