"""RocketMQ's options and ours: one table.

`docs/compatibility.md` shows the table; a test compares both.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["OPTIONS", "Option"]


class Option(NamedTuple):
    """One option: our name or None, RocketMQ's names with the newest first, and a note."""

    name: str | None
    rocketmq: tuple[str, ...]
    note: str = ""
    #: The only value without consequence here; with another one the broker keeps what rocketstore
    #: does not, and the importer warns. None: every value is harmless.
    harmless: str | None = None


def _absent(note: str, names: str, harmless: str | None = None) -> Option:
    """Options of RocketMQ's, with blanks between them, that have no effect here."""
    return Option(None, tuple(names.split()), note, harmless)


_NOT_BUILT = "not offered: "
_RETENTION = _NOT_BUILT + "give open(retention=Retention(…)), or call Store.trim"
_REPLICATION = _NOT_BUILT + "replication knows no such setting"
_CONTROLLER = _NOT_BUILT + "controller mode; promote, or a lease, decides which store is the master"
_ROLE = _NOT_BUILT + "give open(replication=Master(…)), or Replica(…) for a copy"
_TIMER = _NOT_BUILT + "delivery at any time has no such setting here"
_TRANSACTIONS = _NOT_BUILT + "store.transactions.check_back takes its times as arguments"
_TRANSFER = _NOT_BUILT + "a reader says itself how much it takes"
_DIRECTORIES = "several, or one outside of the store, for reading only"
_SWAP = _NOT_BUILT + "not wired in RocketMQ either (K-42)"
_COMPACTION = _NOT_BUILT + (
    "nothing compacts by itself; `Store.compact` writes a new store, `Store.compacted` reads what "
    "a broker compacted"
)
_LOCKS = _NOT_BUILT + "the append lock adapts by itself (K-25)"
_EXTENSION = _NOT_BUILT + "extension files are read, not written"
_SCHEDULE = _NOT_BUILT + "delivery of delayed messages has no such setting here"
_BATCH_QUEUES = _NOT_BUILT + "batch queues are read, not written"
_DISPATCH = "dispatch is one native loop, bounded by max_undispatched_bytes"
_DLEDGER = "a DLedger log is not read"
_ROCKSDB_QUEUES = "queues in RocksDB are not read: the log is, and such a store is not written"
_ROCKSDB_OFFSETS = (
    "RocketMQ takes queue offsets from RocksDB, which does not know messages put here"
)
_ROCKSDB = _NOT_BUILT + "RocksDB is left to RocketMQ"
_RECOVERY = "recovery looks at all that its checkpoint does not vouch for"

#: Every option of RocketMQ's message store from 3.1 to 5.5, in the order of semantics §15.
OPTIONS: Final[tuple[Option, ...]] = (
    _absent("the path given to rocketstore.open", "storePathRootDir"),
    Option("commit_log_dir", ("storePathCommitLog",), _DIRECTORIES),
    Option("read_only_commit_log_dirs", ("readOnlyCommitLogStorePaths",), _DIRECTORIES),
    _absent(_CONTROLLER, "storePathEpochFile storePathBrokerIdentity"),
    Option(
        "commit_log_file_size_bytes",
        ("mappedFileSizeCommitLog", "mapedFileSizeCommitLog"),
    ),
    Option(
        "consume_queue_file_size_bytes",
        ("mappedFileSizeConsumeQueue", "mapedFileSizeConsumeQueue"),
    ),
    _absent(
        _EXTENSION,
        "enableConsumeQueueExt mappedFileSizeConsumeQueueExt bitMapLengthConsumeQueueExt",
    ),
    _absent(
        _BATCH_QUEUES,
        "mapperFileSizeBatchConsumeQueue searchBcqByCacheEnable maxConsumeQueueScan "
        "sampleCountThreshold pullBatchMaxMessageCount enableBatchPush isEnableBatchPush",
    ),
    _absent(_ROCKSDB_QUEUES, "storeType", "default"),
    _absent(
        _ROCKSDB_QUEUES, "rocksdbCQDoubleWriteEnable useSeparateStorePathForRocksdbCQ", "false"
    ),
    _absent(_ROCKSDB_OFFSETS, "combineAssignOffsetCQType combineCQPreferCQType", "default"),
    _absent(
        _ROCKSDB,
        "rocksdbCQSelectiveDoubleWriteEnable combineCQLoadingCQTypes "
        "combineCQEnableCheckSelf combineCQMaxExtraSearchCommitLogFiles "
        "combineCQUseRocksdbForLmq iteratorWhenUseRocksdbConsumeQueue "
        "cleanRocksDBDirtyCQIntervalMin statRocksDBCQIntervalSec memTableFlushIntervalMs "
        "realTimePersistRocksDBConfig enableRocksDBLog rocksdbCompressionType "
        "bottomMostCompressionTypeForConsumeQueueStore rocksdbFlushWalFrequency "
        "rocksdbWalFileRollingThreshold rocksdbMaxSizeAmplificationPercent "
        "popRocksdbBlockCacheSize popRocksdbWriteBufferSize",
    ),
    _absent(_DLEDGER, "enableDLegerCommitLog", "false"),
    _absent(
        _DLEDGER, "storePathDLedgerCommitLog dLegerGroup dLegerPeers dLegerSelfId preferredLeaderId"
    ),
    _absent(
        "RocketMQ leaves stale bytes after its records, which are no damage",
        "writeWithoutMmap",
        "false",
    ),
    _absent(
        _NOT_BUILT + "the log is written through a mapping or a buffer of the store",
        "sharedByteBufferNum maxCheckMessageReuseBufferSize",
    ),
    _absent("always: a sync that fails stops the store (K-01)", "enableRunningFlagsInFlush"),
    _absent(
        "RocketMQ starts only where the checkpoint holds an offset of its queues",
        "enableAcceleratedRecovery",
        "false",
    ),
    _absent(
        _RECOVERY,
        "commitLogRecoverMaxNum maxRecoveryCommitlogFiles checkCommitLogOffsetOnRecover "
        "enableLogConsumeQueueRepeatedlyBuildWhenRecover",
    ),
    Option("max_message_size_bytes", ("maxMessageSize",)),
    Option(
        "auto_wide_topic", ("autoMessageVersionOnTopicLen",), "off unless said: 4.9 cannot read V2"
    ),
    Option("record_crc", ("enabledAppendPropCRC",), "on by default in stores made here"),
    _absent("always verified where a record has it", "forceVerifyPropCRC"),
    Option("check_crc_on_recover", ("checkCRCOnRecover",)),
    Option(
        "store_host",
        ("brokerIP1", "listenPort"),
        'joined to "ip:port"',
    ),
    _absent(
        _LOCKS,
        "useReentrantLockWhenPutMessage useABSLock spinLockCollisionRetreatOptimalDegree "
        "topicQueueLockNum debugLockEnable",
    ),
    _absent(
        "replaced by max_unflushed_bytes and max_wait_ms (K-26)", "osPageCacheBusyTimeOutMills"
    ),
    Option("sync_flush_timeout_ms", ("syncFlushTimeout",)),
    Option("max_wait_ms", ("putMessageTimeout",)),
    _absent(_NOT_BUILT + "give open(replication=Master(replica_timeout=…))", "slaveTimeout"),
    _absent(_REPLICATION, "duplicationEnable"),
    Option("multi_dispatch_enabled", ("enableMultiDispatch",)),
    Option("light_queue_enabled", ("enableLmq",)),
    Option("max_light_queues", ("maxLmqConsumeQueueNum",)),
    _absent(_NOT_BUILT + "quotas of light queues belong to a broker", "enableLmqQuota"),
    _absent(
        _NOT_BUILT + "a broker names its topics to others, a store does not",
        "disappearTimeAfterStart",
    ),
    _absent("127 bytes, or 255 with auto_wide_topic", "maxTopicLength"),
    _absent(_NOT_BUILT + "unused in RocketMQ", "maxAsyncPutMessageRequests"),
    Option(
        "durability",
        ("flushDiskType", "transientStorePoolEnable"),
    ),
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
    Option("lock_segments", ("warmMapedFileEnable",), "pages are locked as they are used (K-48)"),
    _absent(
        "pages are populated ahead: populate_window_bytes; prewrite fills new files (K-48)",
        "flushLeastPagesWhenWarmMapedFile",
    ),
    Option("consume_queue_flush_interval_ms", ("flushIntervalConsumeQueue",)),
    _absent(
        "each interval syncs every queue that has new units",
        "flushConsumeQueueLeastPages flushConsumeQueueThoroughInterval",
    ),
    _absent("queue units always go through a mapping", "putConsumeQueueDataByFileChannel"),
    _absent("the log is read ahead; queue and index files are not", "dataReadAheadEnable"),
    _absent(
        _SWAP,
        "mappedFileSwapEnable commitLogForceSwapMapInterval commitLogSwapMapInterval "
        "commitLogSwapMapReserveFileNum logicQueueForceSwapMapInterval "
        "logicQueueSwapMapInterval logicQueueSwapMapReserveFileNum cleanSwapedMapInterval",
    ),
    Option("visible", ("readUnCommitted",), 'true is "committed"'),
    _absent("always: dispatch goes on from its durable offset", "recheckReputOffsetFromCq"),
    _absent(
        _DISPATCH,
        "enableBuildConsumeQueueConcurrently batchDispatchRequestThreadPoolNums "
        "putMsgIndexHightWater enableAsyncReput dispatchFromSenderThread "
        "dispatchCqThreads dispatchCqCacheNum",
    ),
    Option(
        "index_enabled",
        ("messageIndexEnable", "indexFileWriteEnable"),
        "both have to be true",
    ),
    _absent("index files are read where they are", "indexFileReadEnable"),
    _absent("keys in RocksDB are not found here", "indexRocksDBEnable", "false"),
    _absent(_ROCKSDB, "maxRocksDBIndexQueryDays"),
    _absent("always: the index has a durable offset of its own (K-15)", "messageIndexSafe"),
    Option("index_slots", ("maxHashSlotNum",)),
    Option("index_entries", ("maxIndexNum",)),
    _absent(_NOT_BUILT + "Store.query takes a limit", "maxMsgsNumBatch defaultQueryMaxNum"),
    _absent(
        _TRANSFER,
        "maxTransferBytesOnMessageInMemory maxTransferCountOnMessageInMemory "
        "maxTransferBytesOnMessageInDisk maxTransferCountOnMessageInDisk "
        "accessMessageInMemoryMaxRatio accessMessageInMemoryHotRatio maxFilterMessageSize "
        "travelCqFileNumWhenGetMessage diskFallRecorded",
    ),
    _absent(
        _NOT_BUILT + "cold data control belongs to a broker",
        "coldDataFlowControlEnable coldDataScanEnable timerColdDataCheckIntervalMs sampleSteps",
    ),
    _absent(
        _COMPACTION,
        "enableCompaction compactionMappedFileSize compactionCqMappedFileSize "
        "compactionScheduleInternal compactionThreadNum maxOffsetMapSize",
    ),
    _absent(
        _RETENTION,
        "cleanResourceInterval deleteWhen fileReservedTime deleteFileBatchMax "
        "deleteCommitLogFilesInterval deleteConsumeQueueFilesInterval "
        "destroyMapedFileIntervalForcibly redeleteHangedFileInterval "
        "diskMaxUsedSpaceRatio diskSpaceCleanForciblyRatio diskSpaceWarningLevelRatio "
        "cleanFileForciblyEnable replicasPerDiskPartition "
        "logicalDiskSpaceCleanForciblyThreshold correctLogicMinOffsetSleepInterval "
        "correctLogicMinOffsetForceInterval correctMinOffsetMadviseEnable "
        "maxBatchDeleteFilesNum enableCleanExpiredOffset",
    ),
    Option("delay_levels", ("messageDelayLevel",)),
    _absent(
        _SCHEDULE,
        "flushDelayOffsetInterval enableScheduleAsyncDeliver "
        "scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked "
        "enableScheduleMessageStats",
    ),
    _absent(
        _TIMER,
        "timerWheelEnable timerPrecisionMs timerMaxDelaySec timerRollWindowSlot "
        "mappedFileSizeTimerLog timerFlushIntervalMs timerGetMessageThreadNum "
        "timerPutMessageThreadNum timerCongestNumEachSlot timerSkipUnknownError "
        "timerCheckMetricsWhen timerEnableCheckMetrics timerEnableDisruptor "
        "timerEnableRetryUntilSuccess timerInterceptDelayLevel timerMetricSmallThreshold "
        "timerProgressLogIntervalMs timerStopDequeue timerStopEnqueue timerWarmEnable "
        "timerWheelSnapshotFlush timerWheelSnapshotIntervalMs "
        "timerReputServiceCorePoolSize timerReputServiceMaxPoolSize "
        "timerReputServiceQueueCapacity timerRecallToTimeWheelEnable "
        "timerRecallToTimelineEnable appendTopicForTimerDeleteKey timerRocksDBStopScan "
        "timerRocksDBPrecisionMs timerRocksDBRollMaxTps timerRocksDBTimeExpiredMaxTps "
        "timerRocksDBRollIntervalHours timerRocksDBRollRangeHours",
    ),
    _absent(_TIMER, "timerRocksDBEnable", "false"),
    _absent(
        _TRANSACTIONS,
        "transactionTimeOut transactionCheckInterval transactionCheckMax "
        "transactionOpMsgMaxSize transactionOpBatchInterval tranStateTableMapedFileSize "
        "tranRedoLogMapedFileSize checkTransactionMessageAtleastInterval "
        "checkTransactionMessageTimerInterval checkTransactionMessageEnable "
        "transWriteOriginTransHalfEnable",
    ),
    _absent(_TRANSACTIONS, "transRocksDBEnable", "false"),
    _absent(_ROLE, "brokerRole"),
    _absent(_NOT_BUILT + "give open(replication=Master(listen=…))", "haListenPort"),
    _absent(_NOT_BUILT + "give open(replication=Replica(master=…))", "haMasterAddress"),
    _absent(
        _NOT_BUILT + "give open(replication=…): its heartbeat_every and silence_limit",
        "haSendHeartbeatInterval haHousekeepingInterval",
    ),
    _absent(
        _NOT_BUILT + "give open(replication=Master(max_lag_bytes=…))",
        "haMaxGapNotInSync haSlaveFallbehindMax",
    ),
    _absent(
        _NOT_BUILT + 'a put says durability="replicas(n)"',
        "inSyncReplicas minInSyncReplicas totalReplicas",
    ),
    _absent(
        _NOT_BUILT + "give open(replication=Master(max_bytes_per_s=…))",
        "haFlowControlEnable maxHaTransferByteInSecond",
    ),
    _absent(_REPLICATION, "haTransferBatchSize offsetCheckInSlave"),
    _absent(
        _CONTROLLER,
        "enableAutoInSyncReplicas allAckInSyncStateSet haMaxTimeSlaveNotCatchup "
        "syncFromLastFile asyncLearner maxSlaveResendLength maxChecksumRange "
        "syncMasterFlushOffsetWhenStartup",
    ),
)
