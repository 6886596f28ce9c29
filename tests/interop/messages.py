"""A message as either store is given it, and random ones."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import strategies as st

import rocketstore
from rocketstore import PutResult, Store

__all__ = ["HOSTS", "OURS", "SMALL", "Sent", "batches", "config_of", "messages", "oracle_batch"]

#: Files so small that some dozen messages roll everything; RocketMQ's names, both sides get them.
SMALL: Final[dict[str, Any]] = {
    "mappedFileSizeCommitLog": 16 * 1024,
    "mappedFileSizeConsumeQueue": 30 * 20,
    "maxHashSlotNum": 64,
    "maxIndexNum": 300,
    "maxMessageSize": 8 * 1024,
    "maxMsgsNumBatch": 10_000,
    # Levels of hours: RocketMQ's own service delivers nothing while a test looks.
    "messageDelayLevel": "5h 6h 7h",
}
#: Ours beside them: as a program that cares about interop opens a broker's store.
OURS: Final[dict[str, Any]] = {
    "durability": "os",
    "record_crc": False,
    "deliver_delayed": False,
}
BORN_MS: Final = 1_700_000_000_000
HOSTS: Final = ("10.0.0.1:1234", "192.168.255.254:65535", "[fd00::1:2]:10911", "127.0.0.1:0")


def config_of(settings: dict[str, Any], **options: Any) -> rocketstore.StoreConfig:
    """Our configuration from RocketMQ's settings."""
    text = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in settings.items()
    }
    return rocketstore.StoreConfig.from_rocketmq(text, **{**OURS, **options})


@dataclass(frozen=True, kw_only=True)
class Sent:
    """All that a producer decides. Properties keep their order on disk."""

    topic: str = "Orders"
    queue_id: int = 0
    body: bytes = b""
    properties: tuple[tuple[str, str], ...] = ()
    flag: int = 0
    sys_flag: int = 0
    born_timestamp_ms: int = BORN_MS
    born_host: str = HOSTS[0]
    store_host: str = "10.0.0.2:10911"
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0

    @property
    def property_text(self) -> str:
        return "".join(f"{name}\x01{value}\x02" for name, value in self.properties)

    def for_oracle(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "queue_id": self.queue_id,
            "body": base64.b64encode(self.body).decode(),
            "properties": self.property_text,
            "flag": self.flag,
            "sys_flag": self.sys_flag,
            "born_timestamp_ms": self.born_timestamp_ms,
            "born_host": _spaced(self.born_host),
            "store_host": _spaced(self.store_host),
            "reconsume_times": self.reconsume_times,
            "prepared_transaction_offset": self.prepared_transaction_offset,
        }

    def put(self, store: Store) -> PutResult:
        return store.put_message(
            self.topic,
            self.body,
            queue_id=self.queue_id,
            properties=dict(self.properties),
            flag=self.flag,
            sys_flag=self.sys_flag,
            born_time=self.born_timestamp_ms,
            born_host=self.born_host,
            store_host=self.store_host,
            reconsume_times=self.reconsume_times,
            prepared_transaction_offset=self.prepared_transaction_offset,
        )


def oracle_batch(parts: Sequence[Sent]) -> dict[str, Any]:
    """Several messages of one queue as one batch; body, flag and properties are each one's own."""
    whole = parts[0].for_oracle()
    whole["parts"] = [
        {name: part.for_oracle()[name] for name in ("flag", "body", "properties")} for part in parts
    ]
    return whole


def _spaced(host: str) -> str:
    address, _, port = host.rpartition(":")
    return f"{address.strip('[]')} {port}"


# ---- random ones ----

_TEXT: Final = st.text(
    st.characters(min_codepoint=0x20, exclude_categories=["Cs"], exclude_characters="\x7f"),
    min_size=1,
    max_size=12,
)
_TAGS: Final = st.sampled_from(["", "a", "paid", "Aa", "BB", "täg", "🚀", "a||b", "*"])
_KEYS: Final = st.sampled_from(["", "k1", "k2 k3", "Aa", "BB", "Aa BB", "ключ", "k1 k1"])
#: Names without a meaning for a store: what the others do is shown by hand-made messages.
_NAMES: Final = st.sampled_from(["region", "x", "Größe", "trace id", "x-y.z", "🚀"])


@st.composite
def _properties(draw: st.DrawFn) -> tuple[tuple[str, str], ...]:
    named = draw(st.dictionaries(_NAMES, _TEXT, max_size=3))
    tags, keys = draw(_TAGS), draw(_KEYS)
    if tags:
        named["TAGS"] = tags
    if keys:
        named["KEYS"] = keys
    if draw(st.booleans()):
        named["UNIQ_KEY"] = draw(st.from_regex(r"[0-9A-F]{32}", fullmatch=True))
    return tuple(draw(st.permutations(list(named.items()))))


def messages(bodies: st.SearchStrategy[bytes] | None = None) -> st.SearchStrategy[Sent]:
    """Messages that both stores accept as they are."""
    sizes = st.one_of(
        st.binary(max_size=40),
        st.integers(0, 8000)
        .map(lambda size: bytes(range(256)) * (size // 256 + 1))
        # The slice comes second: a draw of one number shrinks better than one of 8000 bytes.
        .flatmap(lambda data: st.integers(0, len(data)).map(lambda n: data[:n][:8000])),
    )
    return st.builds(
        Sent,
        topic=st.sampled_from(["Orders", "Events", "%RETRY%group", "T" * 127]),
        queue_id=st.integers(0, 2),
        body=bodies if bodies is not None else sizes,
        properties=_properties(),
        flag=st.sampled_from([0, 1, -1, 2**31 - 1, -(2**31)]),
        # None, prepared, commit, rollback; compressed is set without being so: stores do not look.
        sys_flag=st.sampled_from([0, 0, 0, 0x4, 0x8, 0xC, 0x2]),
        born_timestamp_ms=st.sampled_from([0, BORN_MS, BORN_MS + 1, 2**62]),
        born_host=st.sampled_from(HOSTS),
        store_host=st.sampled_from(HOSTS[:3]),
        reconsume_times=st.sampled_from([0, 1, 16]),
        prepared_transaction_offset=st.sampled_from([0, 1, 2**40]),
    )


def batches() -> st.SearchStrategy[list[Sent]]:
    """Parts of one batch: what RocketMQ keeps once for all is the same in each."""
    part = st.tuples(st.binary(min_size=1, max_size=60), _properties(), st.integers(0, 3))
    return st.builds(
        lambda queue_id, host, parts: [
            Sent(
                queue_id=queue_id,
                born_host=host,
                store_host=host,
                body=body,
                properties=properties,
                flag=flag,
            )
            for body, properties, flag in parts
        ],
        st.integers(0, 2),
        st.sampled_from(HOSTS[:3]),
        st.lists(part, min_size=1, max_size=6),
    )
