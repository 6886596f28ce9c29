"""What `Master` and `Replica` refuse before anything is opened."""

from __future__ import annotations

import ssl
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rocketstore import ConfigError
from rocketstore.replication import Master, Replica
from tests.support.small_store import open_small

KEY = b"k" * 16
MASTER = {"master": "127.0.0.1:10912"}


def with_certificates() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"listen": 10912}, "listen"),
        ({"listen": "10912"}, "listen"),
        ({"listen": "127.0.0.1:"}, "listen"),
        ({"listen": "127.0.0.1:65536"}, "listen"),
        ({"listen": "::1:10912"}, "listen"),
        ({"listen": "0.0.0.0:10912"}, "listen"),
        ({"listen": "0.0.0.0:10912", "tls": ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)}, "listen"),
        ({"listen": "a..b:10912", "key": KEY}, "listen"),
        ({"listen": "[::]:10912"}, "listen"),
        ({"listen": "10.1.2.3:10912", "protocol": "rocketmq"}, "listen"),
        ({"listen": "store-1.example:10912"}, "listen"),
        ({"protocol": "kafka"}, "protocol"),
        ({"protocol": None}, "protocol"),
        ({"key": b"short"}, "key"),
        ({"key": "k" * 16}, "key"),
        ({"protocol": "rocketmq", "key": KEY}, "key"),
        ({"protocol": "rocketmq", "tls": ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)}, "tls"),
        ({"tls": True}, "tls"),
        ({"tls": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)}, "tls"),
        ({"max_replicas": 0}, "max_replicas"),
        ({"max_replicas": True}, "max_replicas"),
        ({"max_lag_bytes": 1.5}, "max_lag_bytes"),
        ({"max_bytes_per_s": 0}, "max_bytes_per_s"),
        ({"heartbeat_every": "5"}, "heartbeat_every"),
        ({"heartbeat_every": timedelta()}, "heartbeat_every"),
        ({"silence_limit": timedelta(seconds=-1)}, "silence_limit"),
        ({"replica_timeout": timedelta(microseconds=1)}, "replica_timeout"),
        ({"replica_timeout": timedelta.max}, "replica_timeout"),
        ({"lease": 10.0}, "lease"),
    ],
)
def test_a_master_refuses_what_means_nothing(given: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Master(**given)
    assert refused.value.field == field
    assert refused.value.allowed


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"master": "127.0.0.1"}, "master"),
        ({"master": "127.0.0.1:0"}, "master"),
        ({"master": None}, "master"),
        ({"master": "a..b:10912"}, "master"),
        ({**MASTER, "protocol": "RocketMQ"}, "protocol"),
        ({**MASTER, "begin": "latest"}, "begin"),
        ({**MASTER, "begin": 4096}, "begin"),
        ({**MASTER, "begin": -1, "protocol": "rocketmq"}, "begin"),
        ({**MASTER, "begin": True, "protocol": "rocketmq"}, "begin"),
        ({**MASTER, "key": b""}, "key"),
        ({**MASTER, "key": KEY, "protocol": "rocketmq"}, "key"),
        ({**MASTER, "tls": ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)}, "tls"),
        ({**MASTER, "heartbeat_every": None}, "heartbeat_every"),
        ({**MASTER, "silence_limit": timedelta()}, "silence_limit"),
        ({**MASTER, "reconnect_every": timedelta()}, "reconnect_every"),
    ],
)
def test_a_replica_refuses_what_means_nothing(given: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Replica(**given)
    assert refused.value.field == field
    assert refused.value.allowed


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"listen": 10912}, "listen = 10912: must be a text, as 'store-1:10912'"),
        (
            {"key": "a text that is long enough"},
            "key = 'str': None, or 16 bytes or more, of type bytes",
        ),
        ({"key": b"short"}, "key = '5 bytes': None, or 16 bytes or more, of type bytes"),
    ],
)
def test_the_error_says_what_a_setting_has_to_be(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Master(**given)
    assert str(refused.value) == said


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"listen": "localhost:0"},
        {"listen": "[::1]:0"},
        {"listen": "127.8.0.1:0", "protocol": "rocketmq"},
        {"listen": "0.0.0.0:10912", "key": KEY},
        {"listen": "[::]:10912", "tls": with_certificates()},
        {"listen": "localhost:0", "tls": ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)},
    ],
)
def test_loopback_needs_no_secret_and_others_do(given: dict[str, Any]) -> None:
    Master(**given)


def test_a_replica_may_follow_any_address() -> None:
    Replica(master="store-1.example:10912", protocol="rocketmq", begin="last file")
    Replica(master="localhost:10912", protocol="rocketmq", begin=1 << 30)
    Replica(master="[fe80::1]:10912", tls=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))


def test_no_text_has_the_key() -> None:
    secret = b"sixteen bytes or more"
    assert "sixteen" not in repr(Master(key=secret)) + repr(Replica(**MASTER, key=secret))
    for key in (b"tooshort", "sixteen bytes or more"):
        with pytest.raises(ConfigError) as refused:
            Master(key=key)  # type: ignore[arg-type]
        assert "tooshort" not in str(refused.value) and "sixteen" not in str(refused.value)


def test_any_number_of_replicas_can_be_asked_for(tmp_path: Path) -> None:
    with open_small(
        tmp_path, replication=Master(listen="127.0.0.1:0", max_replicas=2**62)
    ) as store:
        assert store.replication.address
