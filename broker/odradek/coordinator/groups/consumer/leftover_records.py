"""The records of a consumer group whose append failed or has an unknown outcome, and the repair of the log.

It is not known whether the log has such records. A repair writes the records of the committed state for their keys,
before the group changes again. If the next change wrote them as well, each failure would make it larger, until no batch
could hold it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from odradek.base.errors import MessageTooLargeError, ProtocolError, RecordListTooLargeError
from odradek.base.types import Offset
from odradek.coordinator.coordinator_ports import KeyValue, RecordLog
from odradek.coordinator.groups.consumer.consumer_record_values import ConsumerRecordType
from odradek.coordinator.groups.consumer.consumer_records import changes
from odradek.coordinator.groups.consumer.consumer_values import NEW_GROUP, ConsumerGroupImage
from odradek.coordinator.groups.group_records import GroupKey, encode_group_key

TOO_LARGE: Final = (MessageTooLargeError, RecordListTooLargeError)
"""Errors of an append that the log refused for its size. It has stored nothing."""

Repaired = Callable[[ProtocolError | None], None]
"""Called when the log agrees with the state again, or with the error of an append."""


class LeftoverRecords:
    """The keys of a group whose records in the log may not agree with its committed state."""

    def __init__(self, group_id: str, log: RecordLog, keys: Iterable[bytes] = ()) -> None:
        """`keys`: see `ConsumerGroup`."""
        self.classic_key: Final = encode_group_key(GroupKey(group_id))
        """The key of the record that the group has while it is a classic group."""
        self._group_id: Final = group_id
        self._log: Final = log
        self._keys: Final = set(keys)

    def __bool__(self) -> bool:
        """Return whether there are such keys."""
        return bool(self._keys)

    def add(self, keys: Iterable[bytes]) -> None:
        """Add the keys of an append whose outcome is not known."""
        self._keys.update(keys)

    def clear(self) -> None:
        """Forget all keys, because records of each of them were committed."""
        self._keys.clear()

    def records(self, before: ConsumerGroupImage, after: ConsumerGroupImage) -> list[KeyValue]:
        """Return records after which the log has the state `after` of a group whose committed state is `before`."""
        # Most heartbeats change nothing; the comparison looks at every member.
        changed = [] if after is before else changes(self._group_id, before, after)
        if not self._keys:
            return changed
        # Only leftover keys are written again: a whole state may exceed the size of a batch.
        touched = self._keys.union(key for key, _ in changed)
        written = [record for record in changes(self._group_id, NEW_GROUP, after) if record[0] in touched]
        kept = {key for key, _ in written}
        stored = self._keys.union(key for key, _ in changes(self._group_id, NEW_GROUP, before))
        # In the order that Kafka accepts (see `changes`): what members have, their targets, members, the group. None of
        # these members has a partition then, so their order in the new state does not matter.
        removed = sorted((key for key in touched & stored if key not in kept or _is_assignment(key)), reverse=True)
        # Kafka refuses records of a consumer group while it has the record of a classic group.
        removed.sort(key=lambda key: key != self.classic_key)
        return [*((key, None) for key in removed), *written]

    def repair(self, state: ConsumerGroupImage, done: Repaired) -> None:
        """Append records after which the log has the committed `state`. Calls `done` later, or at once if there is
        nothing to append. If it fails, the keys remain.

        The state may have been committed in several appends. If the log refuses the records for their size, they are
        appended in parts.
        """
        self._repair(self.records(state, state), None, done)

    def _repair(self, records: Sequence[KeyValue], part_size: int | None, done: Repaired) -> None:
        """`part_size`: maximum number of records of an append, or None for all."""
        if not records:
            self.clear()
            done(None)
            return
        part = records[:part_size]
        self._log.append(part, partial(self._repaired, records, len(part), part_size, done))

    def _repaired(
        self,
        records: Sequence[KeyValue],
        appended: int,
        part_size: int | None,
        done: Repaired,
        outcome: Offset | ProtocolError,
    ) -> None:
        if isinstance(outcome, TOO_LARGE) and appended > 1:
            self._repair(records, appended // 2, done)
        elif isinstance(outcome, ProtocolError):
            done(outcome)
        else:
            self._repair(records[appended:], part_size, done)


def _is_assignment(key: bytes) -> bool:
    return int.from_bytes(key[:2], "big") == ConsumerRecordType.CURRENT_MEMBER_ASSIGNMENT
