"""Planted bugs of transactions: coordinator, markers, logs and offsets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from odradek.base.types import NO_EPOCH
from odradek.coordinator.groups.group_offsets import Committed
from odradek.coordinator.groups.transactional_offsets import TransactionalOffsets
from odradek.coordinator.transactions import transaction_rules, transaction_shard
from odradek.coordinator.transactions.marker_sender import MarkerSender
from odradek.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from odradek.coordinator.transactions.transaction_shard import TransactionShard
from odradek.coordinator.transactions.transaction_values import TransactionMarker, TransactionState
from odradek.log.producers import producer_state
from odradek.log.writes import LogWrites
from odradek.replication.leader import reader
from odradek.replication.leader.reader import PartitionReader
from odradek_testkit.simulation.plants.planting import Bite, Plant
from odradek_testkit.simulation.transactions.transaction_history import FENCED, PREPARED_STAYS, READ_COMMITTED
from odradek_testkit.simulation.transactions.transaction_verdict import (
    ABORTED_INDEX,
    ABORTED_IS_HIDDEN,
    ALL_OR_NOTHING,
    COMMITTED_STAYS,
    EXACTLY_ONCE,
    HANGING,
    MARKERS,
)

ANSWERED: Final = "everything-is-answered"
PREPARED_PLANT_TIMEOUT_MS: Final = 4_000
"""Timeout of prepared transactions where a planted bug gives them one."""

# Coordinator


def _mark_early(right: Any, bite: Bite) -> Any:
    """Markers are sent before the decision is committed."""

    def write(self: Any, entry: Any, following: Any, done: Any) -> None:
        if following.state in transaction_rules.DECIDED and following.partitions:
            bite()
            is_commit = following.state is TransactionState.PREPARE_COMMIT
            marker = TransactionMarker(
                following.producer_id,
                following.producer_epoch,
                is_commit,
                self._log.leader_epoch,
                tuple(sorted(following.partitions)),
            )
            self._markers.send(marker, lambda outcome: None)
        right(self, entry, following, done)

    return write


def _leave_one_out(right: Any, bite: Bite) -> Any:
    """A transaction is complete although one partition has no marker."""

    def send(self: Any, marker: Any, done: Any) -> Any:
        if len(marker.partitions) > 1:
            bite()
            marker = marker._replace(partitions=marker.partitions[:-1])
        return right(self, marker, done)

    return send


def _keep_epoch_on_abort(right: Any, bite: Bite) -> Any:
    """The abort of a transaction that has timed out does not fence its producer."""

    def fence(known: Any, now_ms: int) -> Any:
        bite()
        return replace(right(known, now_ms), producer_epoch=known.producer_epoch)

    return fence


def _keep_epoch_on_init(right: Any, bite: Bite) -> Any:
    """A new producer has the epoch of the previous one."""

    def init_producer(known: Any, request: Any, new_id: Any, now_ms: int) -> Any:
        following = right(known, request, new_id, now_ms)
        if known.producer_epoch == NO_EPOCH:
            return following
        bite()
        return replace(following, producer_epoch=known.producer_epoch)

    return init_producer


def _forget_open_one(right: Any, bite: Bite) -> Any:
    """InitProducerId forgets the open transaction of the previous producer instead of aborting it."""

    def init_producer_id(self: Any, request: Any, new_id: Any, respond: Any) -> None:
        entry = self._entries.get(request.transactional_id)
        if entry is not None and entry.pending is None and entry.current.state is TransactionState.ONGOING:
            bite()
            entry.current = replace(entry.current, state=TransactionState.EMPTY, partitions=frozenset())
        right(self, request, new_id, respond)

    return init_producer_id


def _replace_partitions(right: Any, bite: Bite) -> Any:
    """Partitions that are added to a transaction replace the earlier ones."""

    def add_partitions(known: Any, partitions: Any, now_ms: int, **options: Any) -> Any:
        following = right(known, partitions, now_ms, **options)
        if following is None or following.partitions == frozenset(partitions):
            return following
        bite()
        return replace(following, partitions=frozenset(partitions))

    return add_partitions


def _keep_epoch_on_end(right: Any, bite: Bite) -> Any:
    """In transaction version 2, the end of a transaction does not raise the epoch."""

    def end(known: Any, request: Any, next_id: Any, now_ms: int) -> Any:
        following = right(known, request, next_id, now_ms)
        if following is None or following.producer_epoch == known.producer_epoch:
            return following
        bite()
        return replace(following, producer_epoch=known.producer_epoch)

    return end


def _answer_before_adding(right: Any, bite: Bite) -> Any:
    """In transaction version 2, the coordinator answers a write before the partition is part of the transaction."""

    async def add_written(self: Any, transactional_id: str, producer: Any, partitions: Any) -> Any:
        bite()
        return dict.fromkeys(partitions, 0)

    return add_written


def _never_time_out(right: Any, bite: Bite) -> Any:
    """Transactions do not time out."""

    def has_timed_out(known: Any, now_ms: int) -> bool:
        if right(known, now_ms):
            bite()
        return False

    return has_timed_out


def _time_out_prepared(right: Any, bite: Bite) -> Any:
    """A prepared transaction times out like any other."""

    def has_timed_out(known: Any, now_ms: int) -> bool:
        if known.is_prepared and now_ms - known.started_ms > PREPARED_PLANT_TIMEOUT_MS:
            bite()
            return True
        return bool(right(known, now_ms))

    return has_timed_out


def _abort_prepared_on_init(right: Any, bite: Bite) -> Any:
    """InitProducerId aborts a prepared transaction like any other."""

    def check_not_prepared(known: Any) -> None:
        if known.is_prepared:
            bite()

    return check_not_prepared


def _forget_preparation(right: Any, bite: Bite) -> Any:
    """The next coordinator does not know that a transaction is prepared."""

    def decode_transaction_value(data: bytes) -> Any:
        found = right(data)
        if found.is_prepared:
            bite()
            return replace(found, timeout_ms=PREPARED_PLANT_TIMEOUT_MS)
        return found

    return decode_transaction_value


# Logs


def _forget_aborted(right: Any, bite: Bite) -> Any:
    """A follower does not add aborted transactions to its index."""

    def forget(log: Any, ended: Any) -> None:
        if ended is not None and ended.is_aborted:
            bite()

    def note_copied(self: Any, headers: Any, end_offset: int, markers: Any) -> None:
        owner: Any = LogWrites
        note = owner._note_ended
        owner._note_ended = forget
        try:
            right(self, headers, end_offset, markers)
        finally:
            owner._note_ended = note

    return note_copied


def _snapshot_without_transactions(right: Any, bite: Bite) -> Any:
    """A snapshot of the producers does not contain their open transactions."""

    def pack_snapshot(entries: Any, earlier: Any) -> bytes:
        if any(entry.transaction_first_offset >= 0 for entry in entries):
            bite()
        packed: bytes = right([entry._replace(transaction_first_offset=-1) for entry in entries], earlier)
        return packed

    return pack_snapshot


def _read_open_ones(right: Any, bite: Bite) -> Any:
    """Consumers with read_committed read up to the high watermark."""

    def upper_bound(partition: Any, params: Any) -> int:
        bound: int = right(partition, params)
        if params.replica_id >= 0:
            return bound
        high_watermark: int = partition.log.high_watermark
        if bound < high_watermark:
            bite()
        return high_watermark

    return upper_bound


def _hide_aborted_ones(right: Any, bite: Bite) -> Any:
    """A fetch response does not list the aborted transactions."""

    def committed(self: Any, partition: Any, offset: int, result: Any) -> Any:
        found = right(self, partition, offset, result)
        if found.aborted_transactions:
            bite()
        return found._replace(aborted_transactions=())

    return committed


# Offsets of groups


def _commit_aborted_offsets(right: Any, bite: Bite) -> Any:
    """The offsets of an aborted transaction are committed."""

    def complete(self: Any, producer_id: int, marker_offset: int, *, is_commit: bool) -> None:
        if not is_commit:
            bite()
        right(self, producer_id, marker_offset, is_commit=True)

    return complete


def _show_open_offsets(right: Any, bite: Bite) -> Any:
    """The offsets of a transaction are visible before its marker."""

    def keep(self: Any, group: Any, *arguments: Any) -> None:
        right(self, group, *arguments)
        _, values, record_offset, marker = arguments
        for topic_partition, value in values.items() if marker is None else ():
            bite()
            group.offsets.put(topic_partition, Committed(value, record_offset))

    return keep


TRANSACTION_PLANTS: Final = (
    Plant(
        name="markers before the decision is committed",
        seed=101,
        finds=frozenset({HANGING, ALL_OR_NOTHING, COMMITTED_STAYS, MARKERS, READ_COMMITTED}),
        patches=((TransactionShard, "_write", _mark_early),),
    ),
    Plant(
        name="complete without the marker of one partition",
        seed=1,
        finds=frozenset({HANGING, READ_COMMITTED}),
        patches=((MarkerSender, "send", _leave_one_out),),
    ),
    Plant(
        name="a time-out does not raise the epoch",
        seed=9,
        finds=frozenset({COMMITTED_STAYS, ALL_OR_NOTHING, FENCED, ABORTED_IS_HIDDEN}),
        patches=((transaction_rules, "fence", _keep_epoch_on_abort),),
    ),
    Plant(
        name="InitProducerId does not raise the epoch",
        seed=49,
        finds=frozenset({FENCED, COMMITTED_STAYS, ALL_OR_NOTHING, ABORTED_IS_HIDDEN, READ_COMMITTED, EXACTLY_ONCE}),
        patches=((transaction_rules, "init_producer", _keep_epoch_on_init),),
    ),
    Plant(
        name="InitProducerId forgets the open transaction",
        seed=9,
        finds=frozenset({HANGING, MARKERS, ABORTED_IS_HIDDEN, READ_COMMITTED}),
        patches=((TransactionShard, "init_producer_id", _forget_open_one),),
    ),
    Plant(
        name="new partitions replace those of the transaction",
        seed=36,
        finds=frozenset({HANGING, COMMITTED_STAYS, READ_COMMITTED}),
        patches=((transaction_rules, "add_partitions", _replace_partitions),),
    ),
    Plant(
        name="an end does not raise the epoch",
        seed=46,
        finds=frozenset({EXACTLY_ONCE, HANGING, COMMITTED_STAYS, ALL_OR_NOTHING, ABORTED_IS_HIDDEN, READ_COMMITTED}),
        patches=((transaction_rules, "end", _keep_epoch_on_end),),
        new_epochs=True,
    ),
    Plant(
        name="writes are appended without being added",
        seed=13,
        # The commit finds no transaction, and the last stable offset does not advance, so readers wait for ever.
        finds=frozenset({ANSWERED, HANGING, COMMITTED_STAYS, ALL_OR_NOTHING, READ_COMMITTED}),
        patches=((TransactionCoordinator, "add_written", _answer_before_adding),),
        new_epochs=True,
    ),
    Plant(
        name="transactions do not time out",
        seed=291,
        finds=frozenset({HANGING}),
        patches=((transaction_rules, "has_timed_out", _never_time_out),),
    ),
    Plant(
        name="a prepared transaction times out",
        seed=35,
        finds=frozenset({PREPARED_STAYS}),
        patches=((transaction_rules, "has_timed_out", _time_out_prepared),),
    ),
    Plant(
        name="InitProducerId aborts a prepared transaction",
        seed=21,
        finds=frozenset({PREPARED_STAYS}),
        patches=((transaction_rules, "check_not_prepared", _abort_prepared_on_init),),
    ),
    Plant(
        name="a coordinator forgets that a transaction is prepared",
        seed=35,
        finds=frozenset({PREPARED_STAYS}),
        patches=((transaction_shard, "decode_transaction_value", _forget_preparation),),
    ),
    Plant(
        name="a follower does not index aborted transactions",
        seed=9,
        finds=frozenset({ABORTED_INDEX, READ_COMMITTED}),
        patches=((LogWrites, "_note_copied", _forget_aborted),),
    ),
    Plant(
        name="snapshots without open transactions",
        seed=9,
        finds=frozenset({ABORTED_INDEX, READ_COMMITTED, HANGING, COMMITTED_STAYS}),
        patches=((producer_state, "pack_snapshot", _snapshot_without_transactions),),
    ),
    Plant(
        name="read_committed reads open transactions",
        seed=9,
        finds=frozenset({READ_COMMITTED}),
        patches=((reader, "upper_bound", _read_open_ones),),
    ),
    Plant(
        name="aborted transactions are not listed",
        seed=9,
        finds=frozenset({READ_COMMITTED, EXACTLY_ONCE}),
        patches=((PartitionReader, "_committed", _hide_aborted_ones),),
    ),
    Plant(
        name="offsets of aborted transactions are committed",
        seed=9,
        finds=frozenset({EXACTLY_ONCE}),
        patches=((TransactionalOffsets, "complete", _commit_aborted_offsets),),
    ),
    Plant(
        name="offsets are visible before the marker",
        seed=9,
        finds=frozenset({EXACTLY_ONCE}),
        patches=((TransactionalOffsets, "_keep", _show_open_offsets),),
    ),
)
