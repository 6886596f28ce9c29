"""RocketMQ's options and ours: one table, and the importer that works from it.

`docs/compatibility.md` shows the table; a test compares both.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, get_type_hints

from rocketstore.config.properties_file import read_properties
from rocketstore.config.typed_options import StoreOptions
from rocketstore.config.units import IgnoredOption
from rocketstore.errors import ConfigError

__all__ = ["OPTIONS", "Option", "options_of_broker"]


class Option(NamedTuple):
    """One option: our name or None, RocketMQ's names with the newest first, and a note."""

    name: str | None
    rocketmq: tuple[str, ...]
    note: str = ""


_NOT_BUILT = "not offered: "
_RETENTION = _NOT_BUILT + "retention is the caller's decision, see Store.trim"
_REPLICATION = _NOT_BUILT + "needs replication, which is not part of this store"
_TIMER = _NOT_BUILT + "timer messages are not part of this store"
_TRANSACTIONS = _NOT_BUILT + "transactions are not part of this store"
_TRANSFER = _NOT_BUILT + "a reader says itself how much it takes"
_DIRECTORIES = "several, or one outside of the store, for reading only"
_SWAP = _NOT_BUILT + "not wired in RocketMQ either (K-42)"
_COMPACTION = _NOT_BUILT + "compacted topics are not part of this store"
_LOCKS = _NOT_BUILT + "the append lock adapts by itself (K-25)"
_EXTENSION = _NOT_BUILT + "extension files are read, not written"
_SCHEDULE = _NOT_BUILT + "delivery of delayed messages has no such setting here"

#: Every option of RocketMQ's message store from 3.1 to 5.3, in the order of semantics §15.
OPTIONS: Final[tuple[Option, ...]] = (
    Option(None, ("storePathRootDir",), "the path given to rocketstore.open"),
    Option("commit_log_dir", ("storePathCommitLog",), _DIRECTORIES),
    Option("read_only_commit_log_dirs", ("readOnlyCommitLogStorePaths",), _DIRECTORIES),
    Option(None, ("storePathEpochFile", "storePathBrokerIdentity"), _REPLICATION),
    Option("commit_log_file_size_bytes", ("mappedFileSizeCommitLog", "mapedFileSizeCommitLog")),
    Option(
        "consume_queue_file_size_bytes", ("mappedFileSizeConsumeQueue", "mapedFileSizeConsumeQueue")
    ),
    Option(
        None,
        ("enableConsumeQueueExt", "mappedFileSizeConsumeQueueExt", "bitMapLengthConsumeQueueExt"),
        _EXTENSION,
    ),
    Option(
        None,
        ("mapperFileSizeBatchConsumeQueue",),
        _NOT_BUILT + "batch queues are read, not written",
    ),
    Option("max_message_size_bytes", ("maxMessageSize",)),
    Option(
        "auto_wide_topic", ("autoMessageVersionOnTopicLen",), "off unless said: 4.9 cannot read V2"
    ),
    Option("record_crc", ("enabledAppendPropCRC",), "on by default in stores made here"),
    Option(None, ("forceVerifyPropCRC",), "always verified where a record has it"),
    Option("check_crc_on_recover", ("checkCRCOnRecover",)),
    Option("store_host", ("brokerIP1", "listenPort"), 'joined to "ip:port"'),
    Option(
        None,
        (
            "useReentrantLockWhenPutMessage",
            "useABSLock",
            "spinLockCollisionRetreatOptimalDegree",
            "topicQueueLockNum",
            "debugLockEnable",
        ),
        _LOCKS,
    ),
    Option(
        None,
        ("osPageCacheBusyTimeOutMills",),
        "replaced by max_unflushed_bytes and max_wait_ms (K-26)",
    ),
    Option("sync_flush_timeout_ms", ("syncFlushTimeout",)),
    Option("max_wait_ms", ("putMessageTimeout",)),
    Option(None, ("slaveTimeout", "duplicationEnable"), _REPLICATION),
    Option("multi_dispatch_enabled", ("enableMultiDispatch",)),
    Option("light_queue_enabled", ("enableLmq",)),
    Option("max_light_queues", ("maxLmqConsumeQueueNum",)),
    Option(None, ("maxAsyncPutMessageRequests",), _NOT_BUILT + "unused in RocketMQ"),
    Option("durability", ("flushDiskType", "transientStorePoolEnable")),
    Option("flush_interval_ms", ("flushIntervalCommitLog",)),
    Option("flush_timed", ("flushCommitLogTimed",)),
    Option("flush_least_pages", ("flushCommitLogLeastPages",)),
    Option("flush_thorough_interval_ms", ("flushCommitLogThoroughInterval",)),
    Option("wake_flush_on_put", ("wakeFlushWhenPutMessage",)),
    Option("commit_interval_ms", ("commitIntervalCommitLog",)),
    Option("commit_least_pages", ("commitCommitLogLeastPages",)),
    Option("commit_thorough_interval_ms", ("commitCommitLogThoroughInterval",)),
    Option("wake_commit_on_put", ("wakeCommitWhenPutMessage",)),
    Option("transient_pool_buffers", ("transientStorePoolSize",)),
    Option("transient_pool_fast_fail", ("fastFailIfNoBufferInStorePool",)),
    Option(
        None,
        ("warmMapedFileEnable", "flushLeastPagesWhenWarmMapedFile"),
        "pages are populated ahead: populate_window_bytes; prewrite fills new files (K-48)",
    ),
    Option("consume_queue_flush_interval_ms", ("flushIntervalConsumeQueue",)),
    Option(
        None,
        ("flushConsumeQueueLeastPages", "flushConsumeQueueThoroughInterval"),
        "each interval syncs every queue that has new units",
    ),
    Option(None, ("putConsumeQueueDataByFileChannel",), "queue units always go through a mapping"),
    Option(None, ("dataReadAheadEnable",), "the log is read ahead; queue and index files are not"),
    Option(
        None,
        (
            "mappedFileSwapEnable",
            "commitLogForceSwapMapInterval",
            "commitLogSwapMapInterval",
            "commitLogSwapMapReserveFileNum",
            "logicQueueForceSwapMapInterval",
            "logicQueueSwapMapInterval",
            "logicQueueSwapMapReserveFileNum",
            "cleanSwapedMapInterval",
        ),
        _SWAP,
    ),
    Option("visible", ("readUnCommitted",), 'true is "committed"'),
    Option(None, ("recheckReputOffsetFromCq",), "always: dispatch goes on from its durable offset"),
    Option(
        None,
        (
            "enableBuildConsumeQueueConcurrently",
            "batchDispatchRequestThreadPoolNums",
            "putMsgIndexHightWater",
        ),
        "dispatch is one native loop, bounded by max_undispatched_bytes",
    ),
    Option("index_enabled", ("messageIndexEnable",)),
    Option(None, ("messageIndexSafe",), "always: the index has a durable offset of its own (K-15)"),
    Option("index_slots", ("maxHashSlotNum",)),
    Option("index_entries", ("maxIndexNum",)),
    Option("max_query_results", ("maxMsgsNumBatch",)),
    Option("default_query_results", ("defaultQueryMaxNum",)),
    Option(
        None,
        (
            "maxTransferBytesOnMessageInMemory",
            "maxTransferCountOnMessageInMemory",
            "maxTransferBytesOnMessageInDisk",
            "maxTransferCountOnMessageInDisk",
            "accessMessageInMemoryMaxRatio",
            "accessMessageInMemoryHotRatio",
            "maxFilterMessageSize",
            "travelCqFileNumWhenGetMessage",
            "diskFallRecorded",
        ),
        _TRANSFER,
    ),
    Option(
        None,
        (
            "coldDataFlowControlEnable",
            "coldDataScanEnable",
            "timerColdDataCheckIntervalMs",
            "sampleSteps",
        ),
        _NOT_BUILT + "cold data control belongs to a broker",
    ),
    Option(
        None,
        (
            "enableCompaction",
            "compactionMappedFileSize",
            "compactionCqMappedFileSize",
            "compactionScheduleInternal",
            "compactionThreadNum",
            "maxOffsetMapSize",
        ),
        _COMPACTION,
    ),
    Option(
        None,
        (
            "cleanResourceInterval",
            "deleteWhen",
            "fileReservedTime",
            "deleteFileBatchMax",
            "deleteCommitLogFilesInterval",
            "deleteConsumeQueueFilesInterval",
            "destroyMapedFileIntervalForcibly",
            "redeleteHangedFileInterval",
            "diskMaxUsedSpaceRatio",
            "diskSpaceCleanForciblyRatio",
            "diskSpaceWarningLevelRatio",
            "cleanFileForciblyEnable",
            "replicasPerDiskPartition",
            "logicalDiskSpaceCleanForciblyThreshold",
            "correctLogicMinOffsetSleepInterval",
            "correctLogicMinOffsetForceInterval",
        ),
        _RETENTION,
    ),
    Option("delay_levels", ("messageDelayLevel",)),
    Option(
        None,
        (
            "flushDelayOffsetInterval",
            "enableScheduleAsyncDeliver",
            "scheduleAsyncDeliverMaxPendingLimit",
            "scheduleAsyncDeliverMaxResendNum2Blocked",
            "enableScheduleMessageStats",
        ),
        _SCHEDULE,
    ),
    Option(
        None,
        (
            "timerWheelEnable",
            "timerPrecisionMs",
            "timerMaxDelaySec",
            "timerRollWindowSlot",
            "mappedFileSizeTimerLog",
            "timerFlushIntervalMs",
            "timerGetMessageThreadNum",
            "timerPutMessageThreadNum",
            "timerCongestNumEachSlot",
            "timerSkipUnknownError",
        ),
        _TIMER,
    ),
    Option(
        None,
        (
            "transactionTimeOut",
            "transactionCheckInterval",
            "transactionCheckMax",
            "transactionOpMsgMaxSize",
            "transactionOpBatchInterval",
            "tranStateTableMapedFileSize",
            "tranRedoLogMapedFileSize",
            "checkTransactionMessageAtleastInterval",
            "checkTransactionMessageTimerInterval",
            "checkTransactionMessageEnable",
        ),
        _TRANSACTIONS,
    ),
    Option(
        None,
        (
            "brokerRole",
            "haListenPort",
            "haMasterAddress",
            "haSendHeartbeatInterval",
            "haHousekeepingInterval",
            "haTransferBatchSize",
            "haMaxGapNotInSync",
            "haSlaveFallbehindMax",
            "inSyncReplicas",
            "minInSyncReplicas",
            "totalReplicas",
            "enableAutoInSyncReplicas",
            "allAckInSyncStateSet",
            "haMaxTimeSlaveNotCatchup",
            "haFlowControlEnable",
            "maxHaTransferByteInSecond",
            "syncFromLastFile",
            "asyncLearner",
            "offsetCheckInSlave",
        ),
        _REPLICATION,
    ),
)

_UNKNOWN = "not an option of the message store"
#: Options whose value is not simply carried over.
_SPECIAL: Final = frozenset(
    {
        "flushDiskType",
        "transientStorePoolEnable",
        "readUnCommitted",
        "brokerIP1",
        "listenPort",
        "storePathCommitLog",
        "readOnlyCommitLogStorePaths",
    }
)
#: Separator of the directories in one setting; a system property of the broker may change
#: it.
_BETWEEN_PATHS: Final = ","


def options_of_broker(
    properties: Mapping[str, str] | str | os.PathLike[str],
) -> tuple[dict[str, Any], tuple[IgnoredOption, ...]]:
    """The options of `StoreConfig` that a broker's settings ask for, and the settings without
    effect here.

    Raises:
        ConfigError: a value that cannot be read.
        OSError: the file cannot be read.
    """
    if isinstance(properties, str | os.PathLike):
        properties = read_properties(properties)
    elif not isinstance(properties, Mapping):  # a number would be somebody's open file
        raise ConfigError(
            "properties", properties, "must be a mapping, or the path of a broker.conf"
        )
    for java, value in properties.items():
        if not isinstance(value, str):
            raise ConfigError(java, value, f"must be text, as in broker.conf: {str(value)!r}")
    found: dict[str, Any] = {
        "record_crc": False,
        **_promises(properties),
        **_log_directories(properties),
    }
    ignored = []
    by_name = {java: option for option in OPTIONS for java in option.rocketmq}
    rank = {java: place for option in OPTIONS for place, java in enumerate(option.rocketmq)}
    # The newest spelling wins over older ones, in any order.
    for java in sorted(properties, key=lambda name: -rank.get(name, 0)):
        option = by_name.get(java)
        if option is None or option.name is None:
            reason = option.note if option else _UNKNOWN
            ignored.append(IgnoredOption(java, properties[java], reason))
        elif java not in _SPECIAL:
            found[option.name] = _convert(java, option.name, properties[java])
    return found, tuple(sorted(ignored))


def _log_directories(properties: Mapping[str, str]) -> dict[str, str]:
    """Where the log lies. What lies under the broker's root is told from there, so that a copy of a
    store does not lead to the log of its model."""
    root = properties.get("storePathRootDir", "").strip()
    found = {}
    for name, java in (
        ("commit_log_dir", "storePathCommitLog"),
        ("read_only_commit_log_dirs", "readOnlyCommitLogStorePaths"),
    ):
        text = properties.get(java, "").strip()
        if text:
            paths = [_under(root, path) for path in text.split(_BETWEEN_PATHS) if path]
            found[name] = _BETWEEN_PATHS.join(paths)
    return found


def _under(root: str, path: str) -> str:
    if not root or os.path.isabs(root) != os.path.isabs(path):
        return path
    inside = os.path.relpath(path, root)
    return path if inside.split(os.sep)[0] == os.pardir else inside


def _promises(properties: Mapping[str, str]) -> dict[str, Any]:
    """The options that RocketMQ spreads over several of its own."""
    mode = properties.get("flushDiskType", "ASYNC_FLUSH")
    if mode not in ("ASYNC_FLUSH", "SYNC_FLUSH"):
        raise ConfigError("flushDiskType", mode, "must be ASYNC_FLUSH or SYNC_FLUSH")
    pool = _java_bool(properties.get("transientStorePoolEnable", "false"))
    found: dict[str, Any] = {}
    if mode == "SYNC_FLUSH":
        found["durability"] = "disk"  # with a pool as well: the promise is what counts (K-08)
    else:
        found["durability"] = "memory" if pool else "os"
    if _java_bool(properties.get("readUnCommitted", "false")):
        found["visible"] = "committed"
    if "brokerIP1" in properties or "listenPort" in properties:
        address = properties.get("brokerIP1", "127.0.0.1")
        host = f"[{address}]" if ":" in address else address
        found["store_host"] = f"{host}:{properties.get('listenPort', '10911')}"
    return found


def _java_bool(text: str) -> bool:
    """As Boolean.parseBoolean: everything but true, in any case, is false."""
    return text.strip().lower() == "true"


def _convert(java: str, name: str, text: str) -> int | bool | str:
    kind = get_type_hints(StoreOptions)[name]
    if kind is bool:
        return _java_bool(text)
    if kind is not int:
        return text.strip()
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text.strip()):
        raise ConfigError(java, text, "must be a whole number")
    return int(text)
