"""How a store is opened: for writing, in memory when it is dead and read-only, or as a follower.

For writing: lock → marks → recovery → queues and index → dispatch of what is missing → workers (DESIGN 8).
"""

from __future__ import annotations

import dataclasses
import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path

from rocketstore._native import syscalls
from rocketstore._native.positions import Positions
from rocketstore._native.ring import Ring
from rocketstore._native.waiting import Signal
from rocketstore.config import Durability, StoreConfig
from rocketstore.errors import ConfigError
from rocketstore.log import recovery
from rocketstore.log.checkpoint import CheckpointFile, OwnCheckpoint, RocketmqCheckpoint
from rocketstore.log.checkpointer import Checkpointer
from rocketstore.log.commit_log import CommitLog
from rocketstore.log.committer import Committer
from rocketstore.log.consume_queue_store import ConsumeQueueStore
from rocketstore.log.consumer_offsets import ConsumerOffsets
from rocketstore.log.dispatcher import Dispatcher
from rocketstore.log.flusher import Flusher
from rocketstore.log.index import IndexStore
from rocketstore.log.layout import StoreLayout
from rocketstore.log.lock import OUR_MARK, StoreLock, abort_exists, create_abort
from rocketstore.log.mapped_file_queue import Access, MappedFileQueue
from rocketstore.log.positions import PositionsPage, boot_id
from rocketstore.log.preallocator import Preallocator
from rocketstore.log.put_queues import PutQueues
from rocketstore.log.running_flags import RunningFlags
from rocketstore.log.state_files import clean_tmp, make_directories
from rocketstore.log.store_source import StoreSource
from rocketstore.log.write_buffer_pool import WriteBufferPool

logger = logging.getLogger(__name__)
