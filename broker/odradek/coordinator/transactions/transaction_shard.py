"""The transactional ids of one `__transaction_state` partition: the state machine that `coordinator_runtime` runs.

`transaction_coordinator` runs requests on it. All methods are synchronous and run on the event loop, one at a time.
`transaction_rules` decides. This module writes the next state to the log, makes it current when it is committed, and
sends the markers of a decision. Invariants: at most one transition of an id is pending; markers are sent only for a
committed decision; a transaction is complete only when every partition has its marker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from typing import Final

from odradek.base.errors import (
    ConcurrentTransactionsError,
    CoordinatorNotAvailableError,
    MalformedFrameError,
    MessageTooLargeError,
    ProtocolError,
    RequestTimedOutError,
    TransactionAbortableError,
    TransactionalIdNotFoundError,
    UnknownServerError,
)
from odradek.base.ports import Clock, Timer
from odradek.base.types import Offset, TopicPartition
from odradek.coordinator.append_errors import COMMON_ERRORS, ErrorTable, translated
from odradek.coordinator.coordinator_ports import RecordLog, Respond
from odradek.coordinator.record_replay import replay_records
from odradek.coordinator.transactions import transaction_rules as rules
from odradek.coordinator.transactions.transaction_records import (
    decode_transaction_key,
    decode_transaction_value,
    encode_transaction_key,
    encode_transaction_value,
    value_version,
)
from odradek.coordinator.transactions.transaction_values import (
    EndRequest,
    InitRequest,
    MarkerOutcome,
    Markers,
    ProducerIdAndEpoch,
    Transaction,
    TransactionLevel,
    TransactionListing,
    TransactionMarker,
    TransactionSettings,
    TransactionState,
    oldest_level,
)
from odradek.records.v2.batch import BatchHeader
from odradek.records.v2.record import Record

logger = logging.getLogger(__name__)

RETRY_MS: Final = 100.0
"""Pause before the completion of a transaction is written again that could not be written."""

TOMBSTONES: Final = 1000
"""Number of expired ids that are removed by one append."""

_APPEND_ERRORS: Final[ErrorTable] = {
    **COMMON_ERRORS,
    RequestTimedOutError: CoordinatorNotAvailableError,
    MessageTooLargeError: UnknownServerError,
}
"""Errors for clients by error of a failed append. Other errors are not changed."""


class _Entry:
    """One transactional id."""

    __slots__ = ("current", "pending", "retry", "stop_markers", "transactional_id")

    def __init__(self, transactional_id: str, current: Transaction) -> None:
        self.transactional_id: Final = transactional_id
        self.current = current
        """The committed state."""
        self.pending: Transaction | None = None
        """The next state, while its record is appended or the markers before it are written."""
        self.stop_markers: Callable[[], None] | None = None
        self.retry: Timer | None = None


class TransactionShard:
    """The state machine of one partition."""

    def __init__(
        self,
        *,
        settings: TransactionSettings,
        clock: Clock,
        log: RecordLog,
        markers: Markers,
        level: TransactionLevel = oldest_level,
    ) -> None:
        """`markers` sends the markers of all partitions of this broker. `level` decides the version of the records."""
        self._level = level
        self._settings = settings
        self._clock = clock
        self._log = log
        self._markers = markers
        self._entries: dict[str, _Entry] = {}
        self._open: dict[str, _Entry] = {}
        """The ids with an open transaction: those that may time out."""
        self._is_loaded = False
        self._unreadable = 0
        self.retry_count = 0
        """Number of transactions whose last record could not be appended and is tried again."""

    def __len__(self) -> int:
        """Number of transactional ids."""
        return len(self._entries)

    # Loading and unloading

    def replay(self, records: bytes) -> Iterator[int]:
        """Apply a record set of the log. Yields the number of records after each batch.

        A record that cannot be read is skipped and counted, so that it does not make all ids of the partition
        unavailable. Raises `CorruptMessageError` or `InvalidRecordError` for a corrupt batch.
        """
        return replay_records(records, self._take)

    def _take(self, _header: BatchHeader, record: Record) -> None:
        try:
            if record.key is None:
                raise MalformedFrameError("it has no key")
            transactional_id = decode_transaction_key(record.key)
            if transactional_id is None:
                raise MalformedFrameError("its key has an unknown version")
            if record.value is None:
                self._entries.pop(transactional_id, None)
            else:
                value = decode_transaction_value(record.value)
                self._entries[transactional_id] = _Entry(transactional_id, value)
        except MalformedFrameError as error:
            self._unreadable += 1
            logger.error("record %d of the transaction log cannot be read and is skipped: %s", record.offset, error)

    def on_loaded(self) -> None:
        """Send the markers of transactions that are decided and not complete."""
        self._is_loaded = True
        decided = 0
        for entry in list(self._entries.values()):
            state = entry.current.state
            if state is TransactionState.DEAD:
                del self._entries[entry.transactional_id]
            elif state is TransactionState.ONGOING:
                self._open[entry.transactional_id] = entry
            elif state in rules.DECIDED:
                decided += 1
                self._send_markers(entry)
        logger.log(
            logging.INFO if self._entries or self._unreadable else logging.DEBUG,
            "loaded %d transactional ids: %d with an open transaction, %d with a decided one; skipped %d records",
            len(self._entries),
            len(self._open),
            decided,
            self._unreadable,
        )

    def on_unloaded(self) -> None:
        """Stop sending markers: the next coordinator sends them."""
        self._is_loaded = False
        for entry in self._entries.values():
            if entry.stop_markers is not None:
                entry.stop_markers()
                entry.stop_markers = None
            if entry.retry is not None:
                entry.retry.cancel()
                entry.retry = None
        self._entries.clear()
        self._open.clear()
        self.retry_count = 0

    # Requests

    def needs_new_id(self, request: InitRequest) -> bool:
        """Whether `init_producer_id` has to be given a new producer id."""
        entry = self._entries.get(request.transactional_id)
        return rules.needs_new_id(None if entry is None else entry.current, request.expected)

    def init_producer_id(self, request: InitRequest, new_id: int | None, respond: Respond[ProducerIdAndEpoch]) -> None:
        """Handle InitProducerId. An open transaction is aborted first, and its producer fenced.

        Raises `ConcurrentTransactionsError` until the abort is complete, or while a transaction is prepared, and
        `ProducerFencedError`.
        """
        entry = self._entries.get(request.transactional_id)
        now_ms = self._clock.wall_ms()
        if entry is None:
            assert new_id is not None, request
            entry = _Entry(request.transactional_id, rules.created(request, new_id, now_ms))
            self._entries[request.transactional_id] = entry
            new_id = None
        self._check_no_transition(entry)
        rules.check_not_prepared(entry.current)
        rules.check_expected(entry.current, request.expected)
        if entry.current.state is TransactionState.ONGOING:
            self._abort(entry)
            raise ConcurrentTransactionsError(
                "The open transaction of the previous producer is being aborted: try again."
            )
        following = rules.init_producer(entry.current, request, new_id, now_ms)
        identity = ProducerIdAndEpoch(following.producer_id, following.producer_epoch)
        self._write(entry, following, lambda error: respond(identity if error is None else error))

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        respond: Respond[None],
        *,
        client_version: int = 0,
    ) -> None:
        """Handle AddPartitionsToTxn and AddOffsetsToTxn: responds when the partitions are in the log.

        `client_version`: the transaction version of the client.

        Raises `InvalidProducerIdMappingError`, `ProducerFencedError` or `ConcurrentTransactionsError`, and
        `InvalidTransactionStateError` if the transaction is prepared.
        """
        entry = self._checked(transactional_id, producer)
        current = entry.current
        if current.state is not TransactionState.ONGOING:
            # A coordinator of Apache Kafka that ended a prepared transaction left its timeout as it was.
            current = rules.with_usual_timeout(current, self._settings.max_timeout_ms)
        following = rules.add_partitions(current, partitions, self._clock.wall_ms(), client_version=client_version)
        if following is None:
            respond(None)
        else:
            self._write(entry, following, respond)

    def verify(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return an error code per partition, 0 if it is part of the open transaction of the producer (KIP-890).

        Raises the errors of `add_partitions`.
        """
        current = self._checked(transactional_id, producer).current
        if current.state in rules.DECIDED:
            raise ConcurrentTransactionsError("The transaction is being completed: try again.")
        included = current.partitions
        return {each: 0 if each in included else TransactionAbortableError.code for each in partitions}

    def prepare(self, transactional_id: str, producer: ProducerIdAndEpoch, respond: Respond[None]) -> None:
        """Handle PrepareTxn: responds when the log has the prepared transaction.

        Raises the errors of `end`.
        """
        entry = self._checked(transactional_id, producer)
        following = rules.prepare(entry.current, self._clock.wall_ms())
        if following is None:
            respond(None)
        else:
            self._write(entry, following, respond)

    def needs_next_id(self, transactional_id: str, request: EndRequest) -> bool:
        """Whether `end` has to be given a new producer id."""
        entry = self._entries.get(transactional_id)
        return rules.needs_next_id(None if entry is None else entry.current, request)

    def end(
        self, transactional_id: str, request: EndRequest, next_id: int | None, respond: Respond[ProducerIdAndEpoch]
    ) -> None:
        """Handle EndTxn: responds with the id and epoch for the next transaction when the decision is committed. The
        markers follow.

        Raises `InvalidProducerIdMappingError`, `ProducerFencedError`, `ConcurrentTransactionsError` or
        `InvalidTransactionStateError`.
        """
        entry = self._entries.get(transactional_id)
        if entry is None or not rules.is_repeated_end(entry.current, request.producer):
            entry = self._checked(transactional_id, request.producer)
        self._check_no_transition(entry)
        current = entry.current
        if current.is_prepared:
            current = rules.with_usual_timeout(current, self._settings.max_timeout_ms)
        if next_id is None and rules.needs_next_id(current, request):
            raise ConcurrentTransactionsError("The transactional id has changed meanwhile: try again.")
        following = rules.end(current, request, next_id, self._clock.wall_ms())
        if following is None:
            respond(current.identity)
            return
        identity = following.identity
        self._write(entry, following, lambda error: respond(identity if error is None else error))

    def _checked(self, transactional_id: str, producer: ProducerIdAndEpoch) -> _Entry:
        entry = self._entries.get(transactional_id)
        rules.check_producer(None if entry is None else entry.current, producer)
        assert entry is not None
        self._check_no_transition(entry)
        return entry

    @staticmethod
    def _check_no_transition(entry: _Entry) -> None:
        if entry.pending is not None:
            raise ConcurrentTransactionsError("The transactional id has a transition in progress: try again.")

    # Views

    def describe(self, transactional_id: str) -> Transaction:
        """Return the committed state of an id. Raises `TransactionalIdNotFoundError`."""
        entry = self._entries.get(transactional_id)
        if entry is None or entry.current.producer_epoch < 0:
            raise TransactionalIdNotFoundError(f"The transactional id {transactional_id!r} does not exist.")
        return entry.current

    def listings(
        self, states: Collection[str] = (), producer_ids: Collection[int] = (), longer_than_ms: int = -1
    ) -> Iterator[TransactionListing]:
        """Yield the ids with one of these states and producer ids (empty: all).

        `longer_than_ms`: only transactions that began longer ago; a negative number means all (KIP-994).
        """
        now_ms = self._clock.wall_ms()
        for transactional_id, entry in self._entries.items():
            current = entry.current
            if (
                current.producer_epoch >= 0
                and (not states or current.state.text in states)
                and (not producer_ids or current.producer_id in producer_ids)
                and (longer_than_ms < 0 or now_ms - current.started_ms > longer_than_ms)
            ):
                yield TransactionListing(
                    transactional_id=transactional_id, producer_id=current.producer_id, state=current.state
                )

    def prepared(self) -> Iterator[Transaction]:
        """Yield the prepared transactions."""
        return (entry.current for entry in self._open.values() if entry.current.is_prepared)

    # Timers

    def abort_timed_out(self) -> None:
        """Abort the open transactions that have lasted longer than their timeout."""
        now_ms = self._clock.wall_ms()
        for entry in list(self._open.values()):
            if entry.pending is None and rules.has_timed_out(entry.current, now_ms):
                logger.info(
                    "the transaction of %r, producer id %d, is aborted: it is open for more than %d ms",
                    entry.transactional_id,
                    entry.current.producer_id,
                    entry.current.timeout_ms,
                )
                self._abort(entry)

    def expire(self) -> None:
        """Remove the ids that have not been used for `transactional.id.expiration.ms`."""
        now_ms, expiration_ms = self._clock.wall_ms(), self._settings.id_expiration_ms
        expired = [
            entry
            for entry in self._entries.values()
            if entry.pending is None and rules.has_expired(entry.current, now_ms, expiration_ms)
        ]
        for start in range(0, len(expired), TOMBSTONES):
            self._remove(expired[start : start + TOMBSTONES])

    def _remove(self, entries: list[_Entry]) -> None:
        for entry in entries:
            entry.pending = entry.current

        def appended(outcome: Offset | ProtocolError) -> None:
            if isinstance(outcome, ProtocolError):
                logger.warning("%d expired transactional ids were not removed: %s", len(entries), outcome)
            for entry in entries:
                entry.pending = None
                if not isinstance(outcome, ProtocolError):
                    self._entries.pop(entry.transactional_id, None)

        self._log.append([(encode_transaction_key(entry.transactional_id), None) for entry in entries], appended)

    # Transitions

    def _write(self, entry: _Entry, following: Transaction, done: Callable[[ProtocolError | None], None]) -> None:
        """Append the next state, make it current when it is committed, and then call `done`."""
        entry.pending = following

        def appended(outcome: Offset | ProtocolError) -> None:
            entry.pending = None
            if isinstance(outcome, ProtocolError):
                if entry.current.producer_epoch < 0:
                    self._entries.pop(entry.transactional_id, None)
                done(translated(outcome, _APPEND_ERRORS))
                return
            self._become(entry, following)
            done(None)

        value = encode_transaction_value(following, value_version(self._level()))
        self._log.append([(encode_transaction_key(entry.transactional_id), value)], appended)

    def _become(self, entry: _Entry, following: Transaction) -> None:
        entry.current = following
        if not self._is_loaded:
            return  # Another broker coordinates the id now.
        if following.state is TransactionState.ONGOING:
            self._open[entry.transactional_id] = entry
        else:
            self._open.pop(entry.transactional_id, None)
        if following.state in rules.DECIDED:
            self._send_markers(entry)

    def _abort(self, entry: _Entry) -> None:
        """Abort an open transaction with a higher epoch."""

        def decided(error: ProtocolError | None) -> None:
            if error is not None:
                logger.warning("the transaction of %r was not aborted: %s", entry.transactional_id, error)

        self._write(entry, rules.fence(entry.current, self._clock.wall_ms()), decided)

    def _send_markers(self, entry: _Entry) -> None:
        current = entry.current
        entry.pending = rules.complete(current, self._clock.wall_ms())
        if not current.partitions:
            self._complete(entry)
            return
        marker = TransactionMarker(
            current.producer_id,
            current.producer_epoch,
            current.state is TransactionState.PREPARE_COMMIT,
            self._log.leader_epoch,
            tuple(sorted(current.partitions)),
        )

        def sent(outcome: MarkerOutcome) -> None:
            entry.stop_markers = None
            if outcome is MarkerOutcome.WRITTEN:
                self._complete(entry)
            else:
                # The id stays in its Prepare state here. The later coordinator has it and completes the transaction.
                logger.error(
                    "the transaction of %r, producer id %d, epoch %d, is not completed here: "
                    "a partition has a marker of a later coordinator or of a later epoch",
                    entry.transactional_id,
                    marker.producer_id,
                    marker.producer_epoch,
                )

        entry.stop_markers = self._markers.send(marker, sent)

    def _complete(self, entry: _Entry) -> None:
        """Write that a transaction is complete. Writes it again until it is committed or the partition moves."""
        if entry.retry is not None:
            entry.retry = None
            self.retry_count -= 1
        following = rules.complete(entry.current, self._clock.wall_ms())

        def written(error: ProtocolError | None) -> None:
            if error is None or not self._is_loaded:
                return
            entry.pending = following
            self.retry_count += 1
            entry.retry = self._clock.call_later(RETRY_MS, lambda: self._complete(entry))

        self._write(entry, following, written)
