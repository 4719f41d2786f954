"""Offset commits that belong to transactions, for the groups of one `__consumer_offsets` partition (KIP-98, KIP-447).

`group_shard` calls it with a group and a request, and again when a marker ends a transaction. The records of a commit
are appended as part of the producer's transaction. Their offsets are open until the marker, and become visible only if
it is a commit marker. Until then they are unstable for OffsetFetch.

The result of an append and the completion of the next marker wait for the same high watermark and may arrive in any
order. Invariant: an offset is completed by the first marker of its producer that follows its record in the log, and by
no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from odradek.base.errors import InvalidProducerEpochError, ProducerFencedError, ProtocolError
from odradek.base.ports import Clock
from odradek.base.types import Offset, TopicPartition
from odradek.coordinator.coordinator_ports import RecordLog, Respond
from odradek.coordinator.groups.group_events import GroupEvents
from odradek.coordinator.groups.group_kinds import AnyGroup
from odradek.coordinator.groups.group_offsets import Committed
from odradek.coordinator.groups.group_records import OffsetValue
from odradek.coordinator.groups.group_requests import GroupSettings, TransactionalCommitRequest
from odradek.coordinator.groups.offset_commits import CommitResult, client_error, commit_records, sort_out


class _Marker(NamedTuple):
    offset: Offset
    is_commit: bool


@dataclass(slots=True)
class _Appends:
    """The appends of one producer that have no result yet."""

    count: int = 0
    markers: list[_Marker] = field(default_factory=list)
    """Markers committed since the first of these appends. Some may follow its records in the log."""


class TransactionalOffsets:
    """Handles transactional commits, and the ends of their transactions."""

    def __init__(
        self,
        *,
        settings: GroupSettings,
        clock: Clock,
        log: RecordLog,
        groups: Mapping[str, AnyGroup],
        events: GroupEvents,
    ) -> None:
        """`groups`: all groups of the partition, by id. `events` counts the commits."""
        self._settings: Final = settings
        self._clock: Final = clock
        self._log: Final = log
        self._groups: Final = groups
        self._events: Final = events
        self._appends: Final[dict[int, _Appends]] = {}
        self._open_in: Final[dict[int, set[str]]] = {}
        """Ids of the groups that may have open offsets of a producer, so that its marker does not search all groups."""

    def restore(self, group: AnyGroup, producer_id: int, topic_partition: TopicPartition, entry: Committed) -> None:
        """Add an open offset that was read from the log."""
        group.offsets.open(producer_id, topic_partition, entry)
        self._open_in.setdefault(producer_id, set()).add(group.group_id)

    def commit(self, group: AnyGroup, request: TransactionalCommitRequest, respond: Respond[CommitResult]) -> None:
        """Store offsets as part of a transaction. When the records are committed, respond with an error code per
        partition.

        Raises `UnknownMemberIdError`, `FencedInstanceIdError`, `IllegalGenerationError` and
        `CoordinatorNotAvailableError`.
        """
        group.check_transactional_commit(request.member)
        result, values = sort_out(request.offsets, self._settings, self._clock.wall_ms())
        if not values:
            respond(result)
            return
        producer_id = request.writer.producer_id
        group.offsets.begin(values)
        self._appends.setdefault(producer_id, _Appends()).count += 1

        def appended(outcome: Offset | ProtocolError) -> None:
            group.offsets.finish(values)
            marker = self._finish(producer_id, outcome)
            if isinstance(outcome, ProtocolError):
                code = _transaction_error(outcome).code
                respond({key: known or code for key, known in result.items()})
                return
            self._events.commits += len(values)
            present = self._groups.get(group.group_id)
            # A group of the other kind may have taken its place. Otherwise it was removed, or has moved.
            if present is not None and present.offsets is group.offsets:
                self._keep(group, producer_id, values, outcome, marker)
            respond(result)

        self._log.append(commit_records(group.group_id, values, self._settings), appended, request.writer)

    def _finish(self, producer_id: int, outcome: Offset | ProtocolError) -> _Marker | None:
        """End an append. Returns the marker that has ended its transaction, if it was completed before."""
        appends = self._appends[producer_id]
        appends.count -= 1
        found = None
        if not isinstance(outcome, ProtocolError):
            # Results arrive in the order of the log, so earlier markers end the transaction of no other append.
            appends.markers = sorted(marker for marker in appends.markers if marker.offset > outcome)
            found = next(iter(appends.markers), None)
        if not appends.count:
            del self._appends[producer_id]
        return found

    def _keep(
        self,
        group: AnyGroup,
        producer_id: int,
        values: Mapping[TopicPartition, OffsetValue],
        record_offset: Offset,
        marker: _Marker | None,
    ) -> None:
        for topic_partition, value in values.items():
            entry = Committed(value, record_offset)
            if marker is None:
                self.restore(group, producer_id, topic_partition, entry)
            elif marker.is_commit:
                group.offsets.put(topic_partition, entry)

    def complete(self, producer_id: int, marker_offset: Offset, *, is_commit: bool) -> None:
        """Make the producer's open offsets before a marker visible, or drop them.

        The markers of a producer are completed in the order of the log. A marker may be completed more than once, and
        after the replay of the log has already taken it into account.
        """
        appends = self._appends.get(producer_id)
        if appends is not None:
            appends.markers.append(_Marker(marker_offset, is_commit))
        for group_id in self._open_in.pop(producer_id, ()):
            group = self._groups.get(group_id)
            if group is not None and group.offsets.complete(producer_id, marker_offset, is_commit=is_commit):
                self._open_in.setdefault(producer_id, set()).add(group_id)


def _transaction_error(error: ProtocolError) -> ProtocolError:
    """Return an error that producers know for the error of a failed append or verification."""
    if isinstance(error, ProducerFencedError):
        return InvalidProducerEpochError(str(error))
    return client_error(error)
