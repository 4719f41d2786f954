"""Copies what was fetched: in transactions of the target, each with records and positions.

A round takes fetched batches of any number of partitions and sources, rewrites them (`batch_rewriting`), sends them,
and commits the new positions as offsets of the mirror's group with `TxnOffsetCommit` (KIP-447), in one transaction or,
for very many batches, in several.
Invariants:

1. The target has the records and the position of a transaction, or neither.
2. The group coordinator accepts positions only from the member that owns the partitions in the current generation. So
   a process that has lost a partition without knowing it cannot commit records of it.
3. After a round whose commit failed or has an unknown result, each of its partitions reads its position from the group
   again, which waits for the end of the transaction.

An error that names a partition stops only that partition. After any other error, the partitions of the round are
copied alone, one in each round, until each was committed once: then the one that causes the error is known.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from odradek.base.errors import (
    ConfigError,
    CorruptMessageError,
    FencedInstanceIdError,
    IllegalGenerationError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTransactionStateError,
    MessageTooLargeError,
    OdradekError,
    PolicyViolationError,
    ProducerFencedError,
    ProtocolError,
    RebalanceInProgressError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from odradek.base.ports import Clock
from odradek.base.tasks import finish
from odradek.base.types import NO_EPOCH
from odradek.client.metadata import Backoff
from odradek.client.models import GroupMetadata, SendResult
from odradek.client.producer.producer import Producer
from odradek.client.settings import ClientSettings
from odradek.mirror.batch_rewriting import CopiedBatch, rewrite
from odradek.mirror.copy_positions import POSITION_RUNS, CopyPosition, PartitionStoppedError
from odradek.mirror.mirror_plan import CopiedPartition
from odradek.mirror.offset_translation import OffsetRun, joined_runs, runs_with
from odradek.mirror.owned_partitions import CopyState, OwnedPartition, OwnedPartitions
from odradek.mirror.source_reader import SourceReader, Taken

_LOG: Final = logging.getLogger(__name__)

ROUND_BYTES: Final = 16 << 20
"""About how much is taken at once. More would not be faster, and take longer to repeat."""
TRANSACTION_BATCHES: Final = 300
"""Maximum number of batches in a transaction. A partition sends only five at a time, and the coordinator aborts
transactions after `transaction.timeout.ms`."""
FULL_BYTES: Final = 1 << 20
"""Fetched bytes with which a round begins at once."""
LINGER_MS: Final = 100.0
POLL_MS: Final = 1_000.0
"""How often the membership is kept alive without news."""
CLOSE_MS: Final = 10_000.0
"""How long the end of the process waits for the brokers of the target."""

_ADVICE: Final[Mapping[type[OdradekError], str]] = {
    MessageTooLargeError: "raise max.message.bytes of the topic in the target, or max.request.size in the "
    "properties of the target",
    InvalidTimestampError: "raise message.timestamp.before.max.ms and message.timestamp.after.max.ms of the topic in "
    "the target",
    PolicyViolationError: "change the policy of the target, or exclude the topic with topics.exclude",
    TopicAuthorizationFailedError: "grant the mirror's user Write on the topic in the target",
    UnknownTopicOrPartitionError: "create the topic in the target, or exclude it with topics.exclude",
    CorruptMessageError: "repair the log of the source, or exclude the topic with topics.exclude",
    InvalidRecordError: "check cleanup.policy of the topic in the target: with compact, records need keys",
}
"""What to do about errors that concern one partition."""
_OWN_ERRORS: Final[tuple[type[OdradekError], ...]] = (ConfigError, *_ADVICE)
_PASSING_ERRORS: Final = (
    FencedInstanceIdError,
    IllegalGenerationError,
    InvalidProducerEpochError,
    ProducerFencedError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
"""Errors of a process whose partitions may belong to another one now, or whose transaction took too long."""


class CopyListener(Protocol):
    """Gets the pairs of offsets of what was copied; see `OffsetSyncs`."""

    def copied(self, partition: CopiedPartition, source_offset: int, target_offset: int) -> None:
        """Note that all records before a source offset are before a target offset, and no others are."""
        ...

    def forget(self, partition: CopiedPartition) -> None:
        """Note that this process does not copy the partition any more."""
        ...

    def interrupt(self, partition: CopiedPartition) -> None:
        """Note that a batch was copied to an unknown offset."""
        ...

    def resume(self, partition: CopiedPartition, runs: Sequence[OffsetRun]) -> None:
        """Note that copying starts at a position with these runs."""
        ...

    def unacknowledged(self, partition: CopiedPartition) -> Sequence[OffsetRun]:
        """Return the complete runs of the partition that a crash would lose."""
        ...

    def growing(self, partition: CopiedPartition) -> OffsetRun | None:
        """Return the run that the next pair of the partition extends."""
        ...


class GroupRights(Protocol):
    """What the rounds need of the membership in the mirror's group."""

    def metadata(self) -> GroupMetadata:
        """Return the member for commits. Raises a `ProtocolError` while there is none."""
        ...

    def polled(self) -> None:
        """Note that the rounds make progress."""
        ...


@dataclass(slots=True)
class _Part:
    """The part of a round that belongs to one partition."""

    owned: OwnedPartition
    batches: Sequence[CopiedBatch]
    position: CopyPosition
    """The position after the part."""
    sent: asyncio.Future[SendResult] | None = None
    error: OdradekError | None = None
    pairs: Sequence[tuple[int, int] | None] = ()
    """The pairs of offsets for the listener. None stands for batches with unknown offsets."""

    def piece(self) -> _Part:
        """Return the part, or its beginning if it has too many batches for one transaction."""
        if len(self.batches) <= TRANSACTION_BATCHES:
            return self
        batches = self.batches[:TRANSACTION_BATCHES]
        # The leader epoch there is unknown.
        position = replace(self.position, offset=batches[-1].next_offset, leader_epoch=NO_EPOCH)
        return _Part(self.owned, batches, position)

    def after(self, piece: _Part) -> _Part | None:
        """Return what follows a piece of the part; None if nothing does."""
        left = self.batches[len(piece.batches) :]
        return _Part(self.owned, left, self.position) if left else None

    def failure(self) -> OdradekError | None:
        """Return the error with which the part could not be sent, if there is one."""
        if self.error is None and self.sent is not None and self.sent.done() and not self.sent.cancelled():
            error = self.sent.exception()
            return error if isinstance(error, OdradekError) else None
        return self.error


class CopyRounds:
    """The rounds of one process. `run` lasts until `stop`."""

    def __init__(
        self,
        settings: ClientSettings,
        readers: Mapping[str, SourceReader],
        owned: OwnedPartitions,
        *,
        rights: GroupRights,
        listeners: Mapping[str, CopyListener],
        on_restart: Callable[[], None],
        clock: Clock,
    ) -> None:
        """`settings` are those of the producer, with a transactional id. `readers` and `listeners` have the names of
        sources as keys. `on_restart` is called when partitions wait for their positions.
        """
        self._settings: Final = settings
        self._readers: Final = readers
        self._owned: Final = owned
        self._rights: Final = rights
        self._listeners: Final = listeners
        self._on_restart: Final = on_restart
        self._clock: Final = clock
        self._backoff: Final = Backoff(200, 10_000)
        self._producer: Producer | None = None
        self._news: Final = asyncio.Event()
        self._alone: dict[CopiedPartition, None] = {}
        self._differences: dict[OwnedPartition, int] = {}
        self._is_stopping = False
        self.lock: Final = asyncio.Lock()
        """Held during a round. Who holds it can take partitions away."""
        self.waiting = 0
        """Number of tasks that wait for the lock."""
        self.count = 0
        """Number of committed rounds."""
        self.aborted = 0
        """Number of rounds whose commit failed or has an unknown result."""

    def wake(self) -> None:
        """Look for fetched batches now."""
        self._news.set()

    def stop(self) -> None:
        """Let `run` return after the round that goes on."""
        self._is_stopping = True
        self.wake()

    async def close(self) -> None:
        """Close the producer, and abort its open transaction if there is one. Idempotent."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close(timeout_ms=CLOSE_MS)

    async def run(self) -> None:
        """Copy until `stop` is called. Errors are logged, and the rounds go on after a pause."""
        failures = 0
        try:
            while not self._is_stopping:
                started_ms = self._clock.monotonic_ms()
                try:
                    await self._copy_once()
                    failures = 0
                except ProtocolError as error:
                    failures += 1
                    _LOG.warning("the target does not take records, and is tried again: %s", error)
                    await self._clock.sleep_ms(self._backoff.delay_ms(failures, self._clock.random()))
                await self._wait(started_ms)
        finally:
            await finish(self.close())

    async def _wait(self, started_ms: float) -> None:
        """Wait for something to copy. Little data waits for `LINGER_MS` after the last round, because a round costs the
        same for a few records and for many."""
        while not self._is_stopping and self._producer is not None:
            self._rights.polled()
            self._news.clear()
            if any(reader.has_news for reader in self._readers.values()):
                waiting = sum(reader.waiting_bytes for reader in self._readers.values())
                left_ms = started_ms + LINGER_MS - self._clock.monotonic_ms()
                if left_ms <= 0 or waiting >= FULL_BYTES:
                    return
                await self._clock.sleep_ms(left_ms)
            else:
                timer = self._clock.call_later(POLL_MS, self._news.set)
                try:
                    await self._news.wait()
                finally:
                    timer.cancel()

    async def _ready_producer(self) -> Producer:
        if self._producer is None:
            producer = Producer(self._settings, clock=self._clock)
            self._producer = producer
            try:
                await producer.start()
                await producer.init_transactions()
            except ProtocolError:
                await self._replace_producer()
                raise
        return self._producer

    async def _replace_producer(self) -> None:
        """Drop the producer. The next one ends or aborts the transaction of this one."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close(timeout_ms=0)

    # One round

    async def _copy_once(self) -> None:
        # Before anything else: partitions cannot start while a transaction of an earlier process or producer is open.
        await self._ready_producer()
        async with self.lock:
            for reader in self._readers.values():
                for partition, error in reader.failures():
                    self._fail(partition, error)
            parts = self._parts(self._take())
            while parts and await self._commit(now := [part.piece() for part in parts]):
                parts = [
                    rest for part, piece in zip(parts, now, strict=True) if (rest := part.after(piece)) is not None
                ]
                if parts and (self._is_stopping or self.waiting):
                    self._restart(parts)
                    return
                self._rights.polled()

    def _take(self) -> list[Taken]:
        """Return what the next round copies."""
        for partition in list(self._alone):
            reader = self._readers.get(partition.source)
            if reader is None or self._owned.find(partition) is None:
                del self._alone[partition]
            elif taken := reader.take(ROUND_BYTES, lambda each, wanted=partition: each == wanted):  # type: ignore[misc]
                return taken
        found: list[Taken] = []
        left = ROUND_BYTES
        for reader in self._readers.values():
            if left > 0:
                taken = reader.take(left, lambda each: each not in self._alone)
                found += taken
                left -= sum(len(each.fetch.records) for each in taken)
        return found

    def _parts(self, taken: Sequence[Taken]) -> list[_Part]:
        parts = []
        for partition, fetch in taken:
            owned = self._owned.find(partition)
            if owned is None or owned.state is not CopyState.COPYING or owned.position is None:
                continue
            assert fetch.fetch_offset == owned.position.offset, (owned.shown, fetch.fetch_offset, owned.position.offset)
            try:
                batches = rewrite(fetch)
            except (CorruptMessageError, InvalidRecordError) as error:
                self._fail(partition, error)
                continue
            position = replace(owned.position, offset=fetch.next_offset, leader_epoch=fetch.leader_epoch)
            parts.append(_Part(owned, batches, position))
        return parts

    async def _commit(self, parts: Sequence[_Part]) -> bool:
        """Copy parts in one transaction. Return whether it was committed for certain."""
        try:
            producer = await self._ready_producer()
            member = self._rights.metadata()
            producer.begin_transaction()
            for part in parts:
                await self._send(producer, part)
            await producer.flush()
            for part in parts:
                self._find_pairs(part)
            offsets = {part.owned.target: part.position.encode() for part in parts}
            await producer.send_offsets_to_transaction(offsets, member)
            await producer.commit_transaction()
        except OdradekError as error:
            await self._abort(parts, error)
            return False
        except BaseException:
            # Cancelled: the transaction stays open until the producer is closed or replaced.
            for part in parts:
                part.owned.must_restart()
            raise
        else:
            self.count += 1
            for part in parts:
                self._committed(part)
            return True

    @staticmethod
    async def _send(producer: Producer, part: _Part) -> None:
        if not part.batches:
            return
        try:
            part.sent = await producer.send_encoded({part.owned.target: [batch.records for batch in part.batches]})
        except _OWN_ERRORS as error:
            part.error = error
            raise

    def _find_pairs(self, part: _Part) -> None:
        """Find out where the sent batches are in the target, and put the runs with them into the position.

        Raises the error with which they could not be sent.
        """
        owned = part.owned
        if part.sent is not None:
            pairs: list[tuple[int, int] | None] = []
            difference, end = self._differences.get(owned), owned.target_offset
            # The brokers acknowledge the batches of a partition in order.
            for batch, sent in zip(part.batches, part.sent.result().batches, strict=True):
                if sent.base_offset < 0:
                    # The offset is unknown, because a retry met the batch in the log. The next pair begins a new run: a
                    # run must not extend over offsets that nobody knows.
                    difference, end = None, -1
                    pairs.append(None)
                    continue
                if sent.base_offset - batch.first_offset != difference:
                    pairs.append((batch.first_offset, sent.base_offset))
                difference, end = sent.base_offset - batch.first_offset, sent.base_offset + sent.record_count
            if end >= 0:
                pairs.append((part.position.offset, end))
            part.pairs = pairs
        part.position = replace(part.position, runs=self._runs_with(owned.partition, part.pairs))

    def _runs_with(self, partition: CopiedPartition, pairs: Sequence[tuple[int, int] | None]) -> tuple[OffsetRun, ...]:
        """Return the runs of a partition that a crash after the commit of these pairs would lose."""
        listener = self._listeners.get(partition.source)
        runs = [] if listener is None else list(listener.unacknowledged(partition))
        run = None if listener is None else listener.growing(partition)
        for pair in pairs:
            if pair is not None:
                *complete, run = runs_with(run, *pair)
                runs += complete
            elif run is not None:
                runs.append(run)
                run = None
        if run is not None:
            runs.append(run)
        return tuple(joined_runs([each for each in runs if each.length], POSITION_RUNS))

    def _committed(self, part: _Part) -> None:
        owned = part.owned
        owned.moved(part.position)
        self._alone.pop(owned.partition, None)
        if part.sent is None:
            return
        for batch, sent in zip(part.batches, part.sent.result().batches, strict=True):
            owned.newest_ms = batch.records.max_timestamp_ms
            owned.records += batch.records.record_count
            owned.bytes += batch.records.size_bytes
            if sent.base_offset < 0:
                owned.target_offset = -1
                self._differences.pop(owned, None)
            else:
                owned.target_offset = sent.base_offset + sent.record_count
                self._differences[owned] = sent.base_offset - batch.first_offset
        listener = self._listeners.get(owned.partition.source)
        if listener is None:
            return
        for pair in part.pairs:
            if pair is None:
                listener.interrupt(owned.partition)
            else:
                listener.copied(owned.partition, *pair)

    def resume(self, owned: OwnedPartition) -> None:
        """Note that a partition starts at its position."""
        listener = self._listeners.get(owned.partition.source)
        if listener is not None and owned.position is not None:
            listener.resume(owned.partition, owned.position.runs)

    def forget(self, owned: OwnedPartition) -> None:
        """Drop what is kept of a partition that this process does not copy any more."""
        self._differences.pop(owned, None)
        self._alone.pop(owned.partition, None)
        listener = self._listeners.get(owned.partition.source)
        if listener is not None:
            listener.forget(owned.partition)

    # Errors

    async def _abort(self, parts: Sequence[_Part], error: OdradekError) -> None:
        """End the transaction, and find out which partitions are to blame."""
        self.aborted += 1
        await self._end_transaction()
        failures = [(part, own) for part in parts if (own := part.failure()) is not None]
        blamed = [(part, own) for part, own in failures if isinstance(own, _OWN_ERRORS)]
        is_temporary = any(_is_temporary(each) for each in (error, *(own for _, own in failures)))
        if not blamed and len(parts) == 1 and not is_temporary:
            blamed = [(parts[0], error)]
        for part, own in blamed:
            self._fail(part.owned.partition, _explained(own, part))
        if not blamed and not is_temporary:
            self._alone.update(dict.fromkeys(part.owned.partition for part in parts))
        self._restart(parts)
        if not blamed:
            _LOG.info("a transaction with %d partitions was aborted and is repeated: %s", len(parts), error)
            if is_temporary and isinstance(error, ProtocolError):
                raise error

    def _restart(self, parts: Sequence[_Part]) -> None:
        """Let the partitions start again at their committed positions."""
        for part in parts:
            self._differences.pop(part.owned, None)
            self._readers[part.owned.partition.source].remove([part.owned.partition])
            part.owned.must_restart()
        self._on_restart()

    async def _end_transaction(self) -> None:
        producer = self._producer
        if producer is None:
            return
        try:
            await producer.abort_transaction()
        except InvalidTransactionStateError:
            # Nothing was begun, or the commit may have happened: a new producer waits for its end.
            await self._replace_producer()
        except OdradekError as error:
            _LOG.info("the producer is replaced, because its transaction could not be aborted: %s", error)
            await self._replace_producer()

    def _fail(self, partition: CopiedPartition, error: OdradekError) -> None:
        self._readers[partition.source].remove([partition])
        self._alone.pop(partition, None)
        owned = self._owned.find(partition)
        if owned is not None:
            owned.failed(error, self._clock.monotonic_ms(), self._clock.random())
            self._on_restart()


def _is_temporary(error: OdradekError) -> bool:
    return isinstance(error, _PASSING_ERRORS) or (isinstance(error, ProtocolError) and error.retriable)


def _explained(error: OdradekError, part: _Part) -> PartitionStoppedError:
    """Return the error with the offset and what to do."""
    advice = next((text for kind, text in _ADVICE.items() if isinstance(error, kind)), "see the log of the brokers")
    explained = PartitionStoppedError(
        f"{part.owned.target} of the target refuses records of {part.owned.shown} from offset "
        f"{part.owned.position.offset if part.owned.position else 0} on: {error}. To go on, {advice}"
    )
    explained.__cause__ = error
    return explained
