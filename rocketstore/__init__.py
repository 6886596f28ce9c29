"""The message store of Apache RocketMQ as a Python library, with a C core.

    import rocketstore

    with rocketstore.open("data/orders") as store:
        result = store.writer("orders").put(b"hello", keys="o-17")
        for message in store.consumer("orders"):
            print(message.queue_offset, message.body)

When `put` returns, the message survives a power cut, unless the store was opened with another
`durability`.

Start with `open`, which gives a `Store`. Its `writer` puts messages, its `consumer` reads them in
order, its `query` finds them by key. `scan` reads a store as columns, `ship` copies it to an
archive. `StoreConfig` explains every option.

Modules for more: `aio` (asyncio), `columns` (names and types of columns), `config` (options),
`errors` (all errors), `filters` (SQL over properties), `message`, `arrow`, `metrics` (Prometheus),
`replication` (masters and replicas), `spark`, `testing` (for tests of programs that use a store),
`tools` (verify, repair, rebuild), `cli` (the command line).

A program imports from here and from these modules. All other modules are inner ones, also where
faces (`aio`, `spark`, `cli` and the like) use names of theirs: `api`, `store`, `writer`,
`consumer`, `completion_port` and `shipping` hold what is exported; `services` what works upon a
store, `sharing` what lets several processes have one; `puts`, `consuming` and `scanning` what
happens in a put, a poll and a scan; then come `engine`, `log`, `archive`, `stats`, `values` and
`_native`, as docs/architecture.md draws them.

Names are imported when they are first used: `import rocketstore` alone loads nothing else of the
package.
"""

import atexit
import importlib
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rocketstore._native.append.put_result import PutResult
    from rocketstore.api.open import open_store as open
    from rocketstore.api.open import opened
    from rocketstore.api.scan import scan
    from rocketstore.api.ship import ship
    from rocketstore.columns import Columns
    from rocketstore.completion_port import CompletionPort, Placed
    from rocketstore.config import StoreConfig
    from rocketstore.consumer import Consumer
    from rocketstore.consuming.group_claims import GroupClaimedError
    from rocketstore.consuming.reading import ConsumerBusyError, OffsetGapError
    from rocketstore.engine.tickets import Ticket
    from rocketstore.errors import (
        BackpressureError,
        BookmarkError,
        ConfigError,
        CorruptRecordError,
        CronSyntaxError,
        DecompressionError,
        DiskFullError,
        DivergedError,
        DurabilityTimeoutError,
        FencedError,
        FilterSyntaxError,
        GuestStoreError,
        InvalidGroupError,
        InvalidTopicError,
        MessageNotFoundError,
        MessageRejectedError,
        MessageTooLargeError,
        MissingSegmentsError,
        NoGroupError,
        OffsetOutOfRangeError,
        OutcomeUnknownError,
        PropertiesTooLargeError,
        QueueNotFoundError,
        QueueOffsetMismatchError,
        ReadFailedError,
        ReplicaStoreError,
        ReplicasUnavailableError,
        ReplicaTimeoutError,
        ReplicationError,
        RocketStoreError,
        StoreBehindError,
        StoreClosedError,
        StoreFailedError,
        StoreLockedError,
        StoreReadOnlyError,
        StoreRecoveringError,
        StoreReplacedError,
        TransactionBusyError,
        TransactionSettledError,
        UnknownTransactionError,
    )
    from rocketstore.log.commitlog.running_flags import FlagReason, FlagState, RunningFlags
    from rocketstore.log.damage import Damage, ValidRun
    from rocketstore.log.read.column_reader import ScanReport
    from rocketstore.log.recovery.report import (
        LostMessages,
        OffsetSetBack,
        RecoveryReport,
        RefilledQueue,
        UnplacedMessages,
    )
    from rocketstore.message import Message, decompress
    from rocketstore.puts.frames import FramesResult, encode_frames, shard_queue_id
    from rocketstore.puts.put_batch import NewMessage
    from rocketstore.scanning.bookmark import Bookmark
    from rocketstore.scanning.scan import Scan
    from rocketstore.services.compaction.report import CompactionReport
    from rocketstore.services.delay.delayed_message import CancelResult, DelayedMessage
    from rocketstore.services.delay.pending import Delayed
    from rocketstore.services.retention.events import RetentionEvent
    from rocketstore.services.retention.plan import HeldLog, RetentionPlan, SegmentPlan
    from rocketstore.services.retention.rule import Retention
    from rocketstore.services.retention.service import StoreRetention
    from rocketstore.services.transactions.store_transaction import StoreTransaction
    from rocketstore.services.transactions.transactions import (
        OpenTransaction,
        Transaction,
        Transactions,
    )
    from rocketstore.shipping import ShipReport
    from rocketstore.stats.histogram import Latency
    from rocketstore.stats.statistics import GuestFigures, Rates, Statistics, TopicTotals
    from rocketstore.store import Store
    from rocketstore.values.durability import Durability
    from rocketstore.writer import Writer

__version__ = "0.2.0"

__all__ = [
    "BackpressureError",
    "Bookmark",
    "BookmarkError",
    "CancelResult",
    "Columns",
    "CompactionReport",
    "CompletionPort",
    "ConfigError",
    "Consumer",
    "ConsumerBusyError",
    "CorruptRecordError",
    "CronSyntaxError",
    "Damage",
    "DecompressionError",
    "Delayed",
    "DelayedMessage",
    "DiskFullError",
    "DivergedError",
    "Durability",
    "DurabilityTimeoutError",
    "FencedError",
    "FilterSyntaxError",
    "FlagReason",
    "FlagState",
    "FramesResult",
    "GroupClaimedError",
    "GuestFigures",
    "GuestStoreError",
    "HeldLog",
    "InvalidGroupError",
    "InvalidTopicError",
    "Latency",
    "LostMessages",
    "Message",
    "MessageNotFoundError",
    "MessageRejectedError",
    "MessageTooLargeError",
    "MissingSegmentsError",
    "NewMessage",
    "NoGroupError",
    "OffsetGapError",
    "OffsetOutOfRangeError",
    "OffsetSetBack",
    "OpenTransaction",
    "OutcomeUnknownError",
    "Placed",
    "PropertiesTooLargeError",
    "PutResult",
    "QueueNotFoundError",
    "QueueOffsetMismatchError",
    "Rates",
    "ReadFailedError",
    "RecoveryReport",
    "RefilledQueue",
    "ReplicaStoreError",
    "ReplicaTimeoutError",
    "ReplicasUnavailableError",
    "ReplicationError",
    "Retention",
    "RetentionEvent",
    "RetentionPlan",
    "RocketStoreError",
    "RunningFlags",
    "Scan",
    "ScanReport",
    "SegmentPlan",
    "ShipReport",
    "Statistics",
    "Store",
    "StoreBehindError",
    "StoreClosedError",
    "StoreConfig",
    "StoreFailedError",
    "StoreLockedError",
    "StoreReadOnlyError",
    "StoreRecoveringError",
    "StoreReplacedError",
    "StoreRetention",
    "StoreTransaction",
    "Ticket",
    "TopicTotals",
    "Transaction",
    "TransactionBusyError",
    "TransactionSettledError",
    "Transactions",
    "UnknownTransactionError",
    "UnplacedMessages",
    "ValidRun",
    "Writer",
    "decompress",
    "encode_frames",
    "open",
    "opened",
    "scan",
    "shard_queue_id",
    "ship",
]

if not TYPE_CHECKING:  # a type checker would take any name for one of this package
    #: Module, then the names it has; the rest of `__all__` is in `rocketstore.errors`. A test
    #: compares this with the imports above.
    _NAMES = {
        "rocketstore._native.append.put_result": ("PutResult",),
        "rocketstore.api.open": ("open_store", "opened"),
        "rocketstore.api.scan": ("scan",),
        "rocketstore.api.ship": ("ship",),
        "rocketstore.columns": ("Columns",),
        "rocketstore.completion_port": ("CompletionPort", "Placed"),
        "rocketstore.config": ("StoreConfig",),
        "rocketstore.consumer": ("Consumer",),
        "rocketstore.consuming.group_claims": ("GroupClaimedError",),
        "rocketstore.consuming.reading": ("ConsumerBusyError", "OffsetGapError"),
        "rocketstore.engine.tickets": ("Ticket",),
        "rocketstore.log.commitlog.running_flags": ("FlagReason", "FlagState", "RunningFlags"),
        "rocketstore.log.damage": ("Damage", "ValidRun"),
        "rocketstore.log.read.column_reader": ("ScanReport",),
        "rocketstore.log.recovery.report": (
            *("LostMessages", "OffsetSetBack", "RecoveryReport", "RefilledQueue"),
            "UnplacedMessages",
        ),
        "rocketstore.message": ("Message", "decompress"),
        "rocketstore.puts.frames": ("FramesResult", "encode_frames", "shard_queue_id"),
        "rocketstore.puts.put_batch": ("NewMessage",),
        "rocketstore.scanning.bookmark": ("Bookmark",),
        "rocketstore.scanning.scan": ("Scan",),
        "rocketstore.services.compaction.report": ("CompactionReport",),
        "rocketstore.services.delay.delayed_message": ("CancelResult", "DelayedMessage"),
        "rocketstore.services.delay.pending": ("Delayed",),
        "rocketstore.services.retention.events": ("RetentionEvent",),
        "rocketstore.services.retention.plan": ("HeldLog", "RetentionPlan", "SegmentPlan"),
        "rocketstore.services.retention.rule": ("Retention",),
        "rocketstore.services.retention.service": ("StoreRetention",),
        "rocketstore.services.transactions.store_transaction": ("StoreTransaction",),
        "rocketstore.services.transactions.transactions": (
            *("OpenTransaction", "Transaction", "Transactions"),
        ),
        "rocketstore.shipping": ("ShipReport",),
        "rocketstore.stats.histogram": ("Latency",),
        "rocketstore.stats.statistics": ("GuestFigures", "Rates", "Statistics", "TopicTotals"),
        "rocketstore.store": ("Store",),
        "rocketstore.values.durability": ("Durability",),
        "rocketstore.writer": ("Writer",),
    }
    _MODULE_OF = dict.fromkeys(__all__, "rocketstore.errors")
    _MODULE_OF |= {name: module for module, names in _NAMES.items() for name in names}
    _MODULE_OF["open"] = _MODULE_OF.pop("open_store")
    #: Modules that users import, next to the names.
    _MODULES = ("aio", "arrow", "cli", "columns", "config", "errors", "message", "metrics")
    _MODULES += ("replication", "spark", "testing", "tools")

    #: What pickles name that is not for users.
    _RESTORERS = {
        "restore_message": "rocketstore.message",
        "restore_put_result": "rocketstore._native.append.put_result",
    }

    def _load(module):
        try:
            return importlib.import_module(module)
        except (ImportError, MemoryError, SystemError) as error:
            # CPython says the last of these where it finds no memory for a named tuple, say.
            words = (" map ", " memory", "error return without exception set")
            if not isinstance(error, MemoryError) and not any(map(str(error).count, words)):
                raise
            limits = "vm.max_map_count (sysctl -w) or RLIMIT_AS (ulimit -v)"
            text = f"{module} cannot be loaded: no mappings or memory are left, raise {limits}"
            raise OSError(12, text) from error  # ENOMEM: `errno` is one more module to load

    def __getattr__(name):
        """A public name or module, imported when it is first asked for (PEP 562)."""
        if name in _MODULES:
            return _load(f"rocketstore.{name}")
        module = _MODULE_OF.get(name) or _RESTORERS.get(name)
        if module is None:
            raise AttributeError(f"module 'rocketstore' has no attribute {name!r}", name=name)
        found = getattr(_load(module), "open_store" if name == "open" else name)
        globals()[name] = found
        return found

    def __dir__():
        """What completion shows. Modules with an extra, as pyarrow, show once they are imported."""
        plain = ("aio", "columns", "config", "errors", "message", "testing", "tools")
        loaded = (name for name in _MODULES if name in globals())
        return sorted({*__all__, *plain, *loaded, "__version__"})

    def _close_open_stores():
        """Registered by the import, not by the first open: a handler of the program that was
        registered in between runs first, and may still put."""
        hook = sys.modules.get("rocketstore.engine.exit_hook")
        if hook is not None:
            hook.close_all()

    atexit.register(_close_open_stores)
