"""Planted bugs of logs: producers and required flushes."""

from __future__ import annotations

from typing import Any, Final

from odradek.base.errors import OdradekError
from odradek.log.flush import NO_LIMIT
from odradek.log.producers import producer_state
from odradek.log.writes import LogWrites
from odradek.replication.partition import Partition
from odradek.replication.sessions.follower_session import Followed
from odradek_testkit.simulation.invariants import DURABLE
from odradek_testkit.simulation.plants.planting import LOST, REPLICATED, Bite, Plant


def _last_batch_only(right: Any, bite: Bite) -> Any:
    def pack_snapshot(entries: Any, earlier: Any) -> bytes:
        if earlier:
            bite()
        packed: bytes = right(entries, ())
        return packed

    return pack_snapshot


def _no_sequences(right: Any, bite: Bite) -> Any:
    def check(header: Any, epoch: int, last_sequence: int, *, unwritten: bool) -> None:
        try:
            right(header, epoch, last_sequence, unwritten=unwritten)
        except OdradekError:
            bite()

    return check


def _no_duplicates(right: Any, bite: Bite) -> Any:
    """A repeated batch of an idempotent producer is written again."""

    def find(producer: Any, header: Any) -> Any:
        if right(producer, header) is not None:
            bite()

    return find


def _acknowledge_unsynced(right: Any, bite: Bite) -> Any:
    """A required flush is requested, but nothing waits for it."""

    def require(self: Any, first_offset: int) -> None:
        right(self, first_offset)
        bite()
        self.durable_limit = NO_LIMIT

    return require


def _count_the_undurable_leader(right: Any, bite: Bite) -> Any:
    """The leader counts itself in the high watermark with its log end."""

    def advance(self: Any, now_ms: float) -> bool:
        limit, self.log.durable_limit = self.log.durable_limit, NO_LIMIT
        try:
            changed: bool = right(self, now_ms)
        finally:
            self.log.durable_limit = limit
        if changed and self.log.high_watermark > limit:
            bite()
        return changed

    return advance


def _report_undurable(right: Any, bite: Bite) -> Any:
    """A follower fetches on while a required flush runs, and so reports records that are not durable."""

    def check_flush(self: Any) -> None:
        right(self)
        if self.awaits_flush:
            bite()
            self.awaits_flush = False

    return check_flush


def _outlive_leadership(right: Any, bite: Bite) -> Any:
    """A request of a deposed leader waits on, and is acknowledged by what a truncation put in its place."""

    def acknowledged(self: Any, required_offset: int) -> int | None:
        if not self.is_leader:
            bite()
            return 0 if self.log.high_watermark >= required_offset else None
        answer: int | None = right(self, required_offset)
        return answer

    return acknowledged


def _never_sync(right: Any, bite: Bite) -> Any:
    """`flush.messages` has no effect."""

    def count(self: Any, records: int) -> None:
        bite()

    return count


LOG_PLANTS: Final = (
    Plant(
        name="duplicates are written",
        seed=244,
        finds=frozenset({"no-doubles", "in-order"}),
        patches=(
            (producer_state, "_find_duplicate", _no_duplicates),
            (producer_state, "_check_sequence", _no_sequences),
        ),
    ),
    Plant(
        name="a restart forgets all but the last batch",
        seed=1110,
        finds=frozenset({"in-order", "no-doubles"}),
        patches=((producer_state, "pack_snapshot", _last_batch_only),),
    ),
    Plant(
        name="records are not synced",
        seed=597,
        finds=frozenset({LOST, REPLICATED, "seen-stays", DURABLE}),
        patches=((LogWrites, "_count_unflushed", _never_sync),),
    ),
    Plant(
        name="acknowledged before the sync",
        seed=4,
        finds=frozenset({LOST, REPLICATED, "seen-stays", DURABLE}),
        patches=((LogWrites, "_require_flush", _acknowledge_unsynced),),
    ),
    Plant(
        name="high watermark above the durable limit of the leader",
        seed=4,
        finds=frozenset({DURABLE}),
        patches=((Partition, "advance", _count_the_undurable_leader),),
    ),
    Plant(
        name="a follower reports what is not durable",
        seed=4,
        finds=frozenset({DURABLE}),
        patches=((Followed, "check_flush", _report_undurable),),
    ),
    Plant(
        name="a request outlives the leadership and a truncation",
        seed=1,
        finds=frozenset({LOST}),
        patches=((Partition, "acknowledged", _outlive_leadership),),
    ),
)
