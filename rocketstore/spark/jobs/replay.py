"""Messages once more: to another store, or to another topic of the same one."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Unpack

from rocketstore.archive import is_uri
from rocketstore.spark.errors import HINTS
from rocketstore.spark.jobs.reading import load
from rocketstore.spark.jobs.system_topics import check_system_topics
from rocketstore.spark.jobs.writing import append
from rocketstore.spark.option_checks import bad_option
from rocketstore.spark.paths import store_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rocketstore.values import Wanted

__all__ = ["replay"]


def replay(
    session: SparkSession,
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    to_topic: str | None = None,
    keys: str | Sequence[str] | None = None,
    transform: Callable[[DataFrame], DataFrame] | None = None,
    decompress: bool = True,
    create_store: bool = True,
    app_id: str | None = None,
    version: int | None = None,
    **wanted: Unpack[Wanted],
) -> int:
    """Appends messages of a store to `target`, in the order of the log; gives the number of those
    that were appended: none when this version was replayed before. Bodies, tags, keys, properties,
    queue ids, flags and born times stay, store times and offsets are new. Topics that services use
    themselves, as that of delayed messages, are left out unless they are named; a warning says how
    many messages those have.

    Args:
        target: a store, also the same one under another topic; what is appended meanwhile is not
            replayed again.
        to_topic: of all copies; default: each keeps its own topic.
        keys: only messages with this key, or one of these.
        transform: makes another frame of the one that is read; it has to keep the column `body`.
        decompress: bodies as producers gave them; False: as they are stored, and copies say so,
            with no codec needed; `transform` is given the same, and leaves them, or sets `sys_flag`
            to what they are then.
        create_store: False: where there is no store at `target`, nothing is written.
        app_id, version: name this replay, so that it is done once however often it is run.
        wanted: what `rocketstore.scan` chooses by: topics, topic_pattern, queues, tags, times.

    Raises:
        SparkFaceError: RS_BAD_OPTION: such a topic is named, and nothing gives its messages another;
            `target` is the store itself, and neither `to_topic` nor `transform` says where
            copies go; RS_NO_STORE.
    """
    routed = to_topic is not None or transform is not None
    place = store_path(path)
    if not routed and not is_uri(place) and _same(place, store_path(target)):
        allowed = f"the store itself would hold each message twice; {HINTS['to_topic']}"
        raise bad_option("target", os.fspath(target), allowed)
    from pyspark.sql import functions as f

    frame = load(session, path, wanted, decompress=decompress)
    check_system_topics(path, wanted, routed=routed)
    if keys is not None:
        asked = f.array(*[f.lit(key) for key in ([keys] if isinstance(keys, str) else keys)])
        frame = frame.where(f.arrays_overlap(f.split("keys", " "), asked))
    if transform is not None:
        frame = transform(frame)
    return append(
        frame,
        target,
        topic=to_topic,
        app_id=app_id,
        version=version,
        createStore=create_store,
    )


def _same(one: str, other: str) -> bool:
    """Whether both are one directory that is there."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False
