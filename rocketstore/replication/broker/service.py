"""The thread that asks the broker of a copy's master for what is not in the log."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from typing import Final

from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import ReplicationError, RocketStoreError, StoreClosedError
from rocketstore.replication.broker import answers
from rocketstore.replication.broker.frames import Answer, AnswerReader, request
from rocketstore.replication.broker.side_files import (
    DELAY_FILE,
    DELAY_OFFSETS,
    LOG_END,
    SIDE_FILES,
    SideFile,
    write_delay_offsets,
)
from rocketstore.replication.settings import Replica
from rocketstore.replication.transport.channels import Channel, connected
from rocketstore.replication.transport.loop import LoopThread
from rocketstore.values.arguments import seconds
from rocketstore.values.kept_errors import without_frames

__all__ = ["BrokerService"]

logger = logging.getLogger(__name__)

#: Longest time from a request to the end of its answer, seconds.
ANSWER_S: Final = 15.0
#: What one read takes, bytes.
RECEIVE_BYTES: Final = 64 << 10
#: Between two looks whether the log has what delay offsets wait for, seconds.
LOOK_S: Final = 0.2
#: Frames that answer nothing, before the connection is given up, count.
UNMATCHED_MOST: Final = 8
SUCCESS: Final = 0


class BrokerService:
    """Has the side files of an open copy kept as those of a broker. A guest of the engine: it ends
    with the store. Its thread is its own, so that the log does not wait for a large answer."""

    def __init__(self, engine: WritingEngine, settings: Replica) -> None:
        assert settings.broker is not None
        self.address = settings.broker
        #: When the last round began, milliseconds since 1970; None: none has.
        self.asked_ms: int | None = None
        #: Entries that each file has got, by its name.
        self.entries: dict[str, int] = {}
        #: What went wrong in the last round; None: nothing did.
        self.last_error: Exception | None = None
        self._every_s = seconds("broker_every", settings.broker_every)
        self._engine = engine
        self._round_error: Exception | None = None
        #: Digests of the answers that files were made from, by their names.
        self._seen: dict[str, bytes] = {}
        #: Offsets of delay levels, and the end of the broker's log that they are true for.
        self._held: tuple[dict[int, int], dict[str, object], int] | None = None
        self._thread = LoopThread(name="rocketstore-broker", main=self._serve)

    def start(self) -> None:
        """Raises OSError where the system has no thread left."""
        self._thread.start()

    def stop(self) -> None:
        """Idempotent."""
        self._thread.stop()

    @property
    def stopped(self) -> BaseException | None:
        """What ended the service, if `stop` did not."""
        return self._thread.error

    # ---- in the loop ----

    async def _serve(self) -> None:
        while not self._engine.closed:
            again = time.monotonic() + self._every_s
            self.asked_ms = time.time_ns() // 1_000_000
            self._round_error = None
            try:
                await self._round()
            except StoreClosedError:
                return
            except (RocketStoreError, OSError) as error:
                self._note(error)
            self.last_error = self._round_error
            await self._wait(again)

    async def _wait(self, until: float) -> None:
        """Writes what is held as soon as it may be."""
        while (left := until - time.monotonic()) > 0:
            await asyncio.sleep(left if self._held is None else min(left, LOOK_S))
            try:
                self._write_held()
            except OSError as error:
                self._note(error)
                self.last_error = self._round_error

    def _note(self, error: Exception) -> None:
        """The first error of a round is the one that is shown; the same one is logged once."""
        if self._round_error is None:
            if str(error) != str(self.last_error):
                logger.warning("%s: broker %s: %s", self._engine.path, self.address, error)
            self._round_error = without_frames(error)

    async def _round(self) -> None:
        synced = self._engine.positions.flushed
        with contextlib.closing(await connected(self.address, None)) as channel:
            broker = _Client(channel)
            delays = None
            if self._held is None:
                delays = await self._asked(broker, DELAY_OFFSETS, DELAY_FILE)
            # What was delivered when the broker answered lies below the end that it says after it.
            end = await self._end_of_log(broker)
            if end < synced:
                raise ReplicationError(
                    f"the log of this broker ends at {end}, the copy has {synced} bytes on its "
                    "disk: give the broker whose HA port is the master of this copy"
                )
            if delays is not None:
                self._hold(delays, end)
            for file in SIDE_FILES:
                await self._got(broker, file)

    async def _end_of_log(self, broker: _Client) -> int:
        answer = await broker.ask(LOG_END)
        if answer.code != SUCCESS:
            raise ReplicationError(f"where its log ends: code {answer.code}, {answer.remark!r}")
        try:
            return answers.end_of_log(answer.body)
        except ValueError as error:
            raise ReplicationError(f"where its log ends: {error}") from None

    async def _asked(self, broker: _Client, code: int, name: str) -> bytes | None:
        """The body of an answer; None, with a note, where the broker has none."""
        answer = await broker.ask(code)
        if answer.code != SUCCESS:
            self._note(ReplicationError(f"{name}: code {answer.code}, {answer.remark!r}"))
            return None
        return answer.body

    async def _got(self, broker: _Client, file: SideFile) -> None:
        body = await self._asked(broker, file.code, file.name)
        digest = hashlib.sha256(body or b"").digest()
        if body is None or self._seen.get(file.name) == digest:
            return
        try:
            self.entries[file.name] = file.take(self._engine, body)
        except ValueError as error:
            self._damaged(file.name, error)
        else:
            self._seen[file.name] = digest

    def _damaged(self, name: str, error: ValueError) -> None:
        said = f"{name} stays as it is, as the broker's answer is no use: {error}"
        self._note(ReplicationError(said))

    # ---- delay levels ----

    def _hold(self, body: bytes, end: int) -> None:
        try:
            self._held = (*answers.delay_offsets(body), end)
        except ValueError as error:
            self._damaged(DELAY_FILE, error)
        else:
            self._write_held()

    def _write_held(self) -> None:
        """Once the log here has what was delivered: with less of it a promoted store would take
        messages for delivered that nobody got."""
        if self._held is not None:
            offsets, rest, end = self._held
            if self._engine.positions.flushed >= end:
                write_delay_offsets(self._engine, offsets, rest)
                self.entries[DELAY_FILE] = len(offsets)
                self._held = None


class _Client:
    """One connection. One question at a time."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._reader = AnswerReader()
        self._asked = 0
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))

    async def ask(self, code: int) -> Answer:
        """Raises ReplicationError: what came is no answer. OSError: the connection broke, or the
        broker was silent for too long."""
        self._asked += 1
        unmatched = 0
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._channel.send((request(code, self._asked),))
                while True:
                    size = await self._channel.receive_into(self._buffer)
                    if not size:
                        raise ConnectionError("the broker ended the connection")
                    for answer in self._reader.receive(self._buffer[:size]):
                        if answer.answers(self._asked):
                            return answer
                        unmatched += 1
                    if unmatched > UNMATCHED_MOST:
                        raise ReplicationError(f"it sent {unmatched} frames, and no answer")
        except TimeoutError:
            raise ConnectionError(f"no answer to request {code} in {ANSWER_S:g} s") from None
