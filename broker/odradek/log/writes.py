"""How records get into the segments of a log: at once, or in groups that a thread writes.

`PartitionLog` is the only subclass. An append to a healthy directory is written on the event loop. While the directory
is slow, appends are staged in a `WriteGroup`, which `log/directories/write_queue` passes to a thread. Invariants: the
log end rises after the write, in the order of the offsets; while a group is being written, nothing else writes to the
active segment, rolls or truncates it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from odradek.base.errors import CorruptMessageError, KafkaStorageError, StorageError
from odradek.base.types import NO_TIMESTAMP
from odradek.log.flush import NO_LIMIT
from odradek.log.plain_group import MOST_BYTES, MOST_ENTRIES, PlainGroup
from odradek.log.producers.producer_state import EndedTransaction, Marker
from odradek.log.segments.transaction_index import AbortedTxn
from odradek.log.state import LogState
from odradek.log.values import LogT
from odradek.log.write_group import GroupFullError, StagedAppend, WriteGroup
from odradek.records.v2.batch import MAGIC, BatchHeader


class LogWrites(LogState[LogT]):
    """The writes of one log; see `PartitionLog`."""

    __slots__ = ()

    def _self(self) -> LogT:
        """Return the log as its host knows it."""
        return cast("LogT", self)

    # After a write

    def _note_led(
        self,
        headers: Sequence[BatchHeader],
        first_offset: int,
        end_offset: int,
        leader_epoch: int,
        markers: Mapping[int, Marker],
    ) -> None:
        """Make the batches part of the log that this broker appended as the leader."""
        self.log_end_offset = end_offset
        if headers[0].magic < MAGIC:
            self._epochs.clear()
        elif leader_epoch > self._epochs.latest_epoch:
            self._epochs.assign(leader_epoch, first_offset)
        if headers[0].producer_id >= 0 or len(headers) > 1:
            self._note_producers(headers, first_offset, markers)
        self._count_unflushed(end_offset - first_offset)

    def _note_copied(self, headers: Sequence[BatchHeader], end_offset: int, markers: Mapping[int, Marker]) -> None:
        """Make the batches part of the log that this broker copied from the leader."""
        count = end_offset - self.log_end_offset
        self.log_end_offset = end_offset
        for place, header in enumerate(headers):
            if header.leader_epoch > self._epochs.latest_epoch:
                self._epochs.assign(header.leader_epoch, header.base_offset)
            elif header.magic < MAGIC:
                # Old formats carry no epoch: an unknown epoch is better than a wrong one.
                self._epochs.clear()
            if header.producer_id >= 0:
                self._note_ended(self._producers.record(header, header.base_offset, markers.get(place)))
        self._count_unflushed(count)

    def _note_producers(self, headers: Sequence[BatchHeader], first_offset: int, markers: Mapping[int, Marker]) -> None:
        offset = first_offset
        for place, header in enumerate(headers):
            if header.producer_id >= 0:
                self._note_ended(self._producers.record(header, offset, markers.get(place)))
            offset += header.last_offset_delta + 1

    def _note_ended(self, ended: EndedTransaction | None) -> None:
        if ended is not None and ended.is_aborted:
            self._segments.active.add_aborted(AbortedTxn(*ended[:4]))

    def _count_unflushed(self, records: int) -> None:
        durability = self._durability
        durability.unflushed_records += records
        if durability.unflushed_records >= self.config.flush_messages:
            self._require_flush(self.log_end_offset - records)

    def _require_flush(self, first_offset: int) -> None:
        """Withhold the acknowledgement of the records from `first_offset` on until the whole log is durable.

        One flush covers all requirements that are made before it begins (group commit).
        """
        durability = self._durability
        durability.required_end = self.log_end_offset
        self.durable_limit = min(self.durable_limit, first_offset)
        if not durability.is_flush_requested:
            durability.is_flush_requested = True
            self._host.sync_soon(self._self())

    # Plain batches

    def open_plain(self, leader_epoch: int, size: int) -> PlainGroup | None:
        """Return an empty group for plain batches of at most `size` bytes together, to be written at once.

        None unless the log is in its usual state: nothing has to be rolled, flushed, queued or recorded besides the
        batches. `append_as_leader` then decides, and raises the errors.
        """
        active, end_offset = self._segments.active, self.log_end_offset
        if (
            not self._takes_plain
            or self._failure is not None
            or self.write_queue is not None
            or self.writing is not None
            or self.has_debris
            or self.durable_limit != NO_LIMIT
            or self._durability.unflushed_records + size >= self.config.flush_messages
            or leader_epoch != self._epochs.latest_epoch
            or active.indexes_valid
            or not active.size
            or not active.has_room_for(MOST_ENTRIES)
        ):
            return None
        largest_timestamp = self._storage.largest_timestamp()
        if largest_timestamp < 0 or self._storage.is_full(size, end_offset + size, NO_TIMESTAMP):
            return None
        try:
            self._host.check_room(self._self())
        except KafkaStorageError:
            return None  # The usual append raises it again, and it becomes an error code there.
        return PlainGroup(
            end_offset,
            leader_epoch,
            left_bytes=min(size, MOST_BYTES),
            most_batch_bytes=self._rules.max_message_bytes,
            largest_timestamp=largest_timestamp,
        )

    def write_plain(self, group: PlainGroup) -> None:
        """Make the batches of a group part of the log. Raises `KafkaStorageError`, with the log unchanged."""
        try:
            self._segments.active.append_plain(group.content(), group.batches, self.config.index_interval_bytes)
        except StorageError as error:
            raise self._write_failed(error) from error
        count = group.end_offset - self.log_end_offset
        self.log_end_offset = group.end_offset
        self._count_unflushed(count)

    # Groups

    def open_group(self) -> WriteGroup:
        """Return an empty group, to be filled and passed to `begin_write` at once. No other one may be in use."""
        assert self.writing is None, f"{self.topic_partition} is being written to"
        return WriteGroup(self.log_end_offset)

    def _check_group(self, group: WriteGroup, headers: Sequence[BatchHeader], size: int) -> None:
        """Raise `GroupFullError` if an append has to wait for the next group. It is not changed before."""
        if group.appends:
            group.check(headers, size)
            end_offset = group.end_offset + sum(header.last_offset_delta + 1 for header in headers)
            max_timestamp = max(header.max_timestamp for header in headers)
            if self._storage.is_full(group.size + size, end_offset - 1, max_timestamp):
                raise GroupFullError("the append has to wait for the next group, which begins with a roll")

    def _stage(self, group: WriteGroup, append: StagedAppend, max_timestamp: int) -> None:
        """Add an append that `_check_group` has admitted to a group. Raises `KafkaStorageError`."""
        self._check_online()
        if not group.appends and self._storage.is_full(len(append.records), append.end_offset - 1, max_timestamp):
            self._checkpoint_before_roll()
            group.roll = self._storage.begin_roll(append.first_offset, append.end_offset - 1, self._producers)
        group.add(append)

    def begin_write(self, group: WriteGroup) -> None:
        """Let a thread run a group; `end_write` or `drop_write` has to follow when it has ended."""
        self.writing = group
        group.begin(self._segments.active, cuts=self.has_debris)

    def end_write(self, group: WriteGroup) -> None:
        """Make the records of a group part of the log, after `run`.

        Raises `KafkaStorageError` or `CorruptMessageError`, with the log unchanged, if they were not written.
        """
        self._end_run(group)
        error = group.error
        if isinstance(error, CorruptMessageError):
            raise error
        if error is not None:
            raise KafkaStorageError(f"{self.topic_partition}: {error}") from error
        active, interval = self._segments.active, self.config.index_interval_bytes
        for append in group.appends:
            headers, first_offset, end_offset = append.headers, append.first_offset, append.end_offset
            if group.is_copied:
                active.added_at(headers, interval)
                self._note_copied(headers, end_offset, append.markers)
            else:
                active.added(headers, first_offset, interval)
                self._note_led(headers, first_offset, end_offset, append.leader_epoch, append.markers)

    def drop_write(self, group: WriteGroup) -> None:
        """Discard the records of a group, after `run`: the replica has another role or leader epoch by now.

        Raises `KafkaStorageError`.
        """
        self._end_run(group)
        self.has_debris = True

    def _end_run(self, group: WriteGroup) -> None:
        """Record what a group did besides writing its records, and whether bytes of them may be left in the file."""
        self.writing = None
        self._check_online()
        if self._is_abandoned:
            raise KafkaStorageError(f"{self.topic_partition} was deleted or moved during the write")
        error = group.error
        if isinstance(error, StorageError) and not error.full:
            raise self._fail(error) from error
        if group.removes_indexes:
            self._durability.note_names()
        self.has_debris = error is not None
        if group.cuts and error is None:
            self._segments.active.is_preallocated = False
        if group.roll is not None:
            try:
                rolled = self._storage.end_roll(group.roll)
            except StorageError as failure:
                raise self._fail(failure) from failure
            self._note_roll(rolled=rolled)

    # Failures

    def _write_failed(self, error: StorageError) -> KafkaStorageError:
        """Undo a write if the disk was full, so that the log works again once space is freed. Other errors end it."""
        if not error.full:
            return self._fail(error)
        try:
            self._segments.active.cut_debris()
            self._segments.active.file.sync()  # before anything is written there, as after a truncation
        except StorageError as second:
            return self._fail(second)
        return KafkaStorageError(f"{self.topic_partition}: {error}")

    def _fail(self, error: StorageError) -> KafkaStorageError:
        if self._failure is None:
            self._failure = error
            self._host.directory_failed(self._self(), error)
        return KafkaStorageError(f"{self.topic_partition} is offline: {error}")

    def take_offline(self, error: StorageError) -> None:
        """Refuse all operations from now on, because the log's directory failed."""
        if self._failure is None:
            self._failure = error
        self._storage.cancel_expired()

    def _check_online(self) -> None:
        if self._failure is not None:
            raise KafkaStorageError(f"{self.topic_partition} is offline: {self._failure}")

    def _check_idle(self) -> None:
        """Raise `KafkaStorageError` if the log is offline, or if the end of its last segment is being written."""
        self._check_online()
        if self.writing is not None:
            raise KafkaStorageError(f"{self.topic_partition} cannot be truncated while a thread writes to it")

    # Roll

    def _make_room(self, size: int, first_offset: int, last_offset: int, max_timestamp: int) -> None:
        """Roll if the active segment has no space for the append or is old enough."""
        if self._failure is not None:
            self._check_online()
        if self._storage.is_full(size, last_offset, max_timestamp):
            self._roll(first_offset, last_offset)
        if self._segments.active.indexes_valid:
            self._withdraw_indexes()

    def _withdraw_indexes(self) -> None:
        """Remove the index files of the active segment, which the next write makes outdated.

        The next flush makes the removal durable before it raises the recovery point.
        """
        try:
            self._segments.active.remove_indexes()
        except StorageError as error:
            raise self._fail(error) from error
        self._durability.note_names()

    def _roll(self, first_offset: int, last_offset: int) -> None:
        self._checkpoint_before_roll()
        try:
            rolled = self._storage.roll(first_offset, last_offset, self._producers)
        except StorageError as error:
            if not error.full:
                raise self._fail(error) from error
            raise KafkaStorageError(f"{self.topic_partition}: {error}") from error
        self._note_roll(rolled=rolled)

    def _checkpoint_before_roll(self) -> None:
        if self._durability.is_checkpoint_stale:
            self._host.checkpoint_now(self._self())
            self._check_online()

    def _note_roll(self, *, rolled: bool) -> None:
        if rolled:
            self._durability.note_names()
            self._host.flush_soon(self._self())
