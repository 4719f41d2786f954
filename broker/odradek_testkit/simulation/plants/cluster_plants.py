"""Planted bugs of replication and of the controller."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from odradek.app import broker as app_broker
from odradek.controller import controller_election as election
from odradek.controller import plans
from odradek.controller.elections import election_rules as elections
from odradek.replication.leader import reader
from odradek.replication.partition import Partition
from odradek.replication.roles import ReplicaRoles
from odradek_testkit.simulation.plants.planting import LOST, REPLICATED, Bite, Plant

# Replication


def _acknowledge_at_once(right: Any, bite: Bite) -> Any:
    def acknowledged(self: Any, required_offset: int) -> int | None:
        answer: int | None = right(self, required_offset)
        if answer is None:
            bite()
            return 0
        return answer

    return acknowledged


def _cut_to_high_watermark(right: Any, bite: Bite) -> Any:
    """A follower truncates to its high watermark, as before KIP-101."""

    def follow(self: Any, partition: Any, state: Any) -> None:
        log = partition.log
        if log.high_watermark < log.log_end_offset:
            bite()
            log.truncate_to(log.high_watermark)
        right(self, partition, state)

    return follow


def _count_one_follower(right: Any, bite: Bite) -> Any:
    """The high watermark follows the fastest follower."""

    def advance(self: Any, now_ms: float) -> bool:
        changed: bool = right(self, now_ms)
        fastest = max((replica.log_end_offset for replica in self.followers()), default=-1)
        mark = min(fastest, self.log.log_end_offset)
        if mark > self.log.high_watermark:
            bite()
            self.log.high_watermark = mark
            return True
        return changed

    return advance


def _let_it_fall(right: Any, bite: Bite) -> Any:
    """The high watermark may fall to what is replicated now."""

    def advance(self: Any, now_ms: float) -> bool:
        ends = [replica.log_end_offset for replica in self.followers() if replica.log_end_offset >= 0]
        slowest = min(ends, default=self.log.log_end_offset)
        if slowest < self.log.high_watermark:
            bite()
            self.log.high_watermark = max(slowest, self.log.log_start_offset)
            return True
        changed: bool = right(self, now_ms)
        return changed

    return advance


def _join_early(right: Any, bite: Bite) -> Any:
    """Every follower that fetches joins the ISR."""

    def should_expand(self: Any, replica: Any) -> bool:
        if right(self, replica):
            return True
        if replica.broker_id in self.in_sync.committed or self.in_sync.is_pending:
            return False
        bite()
        return True

    return should_expand


def _no_divergence(right: Any, bite: Bite) -> Any:
    """A leader does not check the epoch of a follower's last record (KIP-595)."""

    def divergence(partition: Any, entry: Any) -> Any:
        if right(partition, entry) is not None:
            bite()

    return divergence


def _read_everything(right: Any, bite: Bite) -> Any:
    """Consumers see records that are not replicated yet."""

    def upper_bound(partition: Any, params: Any) -> int:
        bound: int = right(partition, params)
        end: int = partition.log.log_end_offset
        if bound < end:
            bite()
        return end

    return upper_bound


def _mark_above_log(right: Any, bite: Bite) -> Any:
    """The checkpointed high watermark is used although the log is shorter."""

    def host(self: Any, topic_partition: Any, topic_id: Any, *, is_new: bool) -> Any:
        claimed: list[int] = []
        claim = self._marks.claim

        class Marks:
            @staticmethod
            def claim(wanted: Any) -> int:
                claimed.append(claim(wanted))
                return claimed[-1]

        marks, self._marks = self._marks, Marks
        try:
            partition = right(self, topic_partition, topic_id, is_new=is_new)
        finally:
            self._marks = marks
        if claimed and claimed[0] > partition.log.high_watermark:
            bite()
            partition.log.high_watermark = claimed[0]
        return partition

    return host


# Controller


def _same_election(right: Any, bite: Bite) -> Any:
    async def become_controller(zk: Any, clock: Any, broker_id: int) -> Any:
        election_result = await right(zk, clock, broker_id)
        if election_result is None:
            return None
        bite()
        return replace(election_result, epoch=1)

    return become_controller


def _same_leader_epoch(right: Any, bite: Bite) -> Any:
    """A new leader has the epoch of the previous one."""

    def next_state(self: Any, current: Any, controller_epoch: int) -> Any:
        bite()
        return replace(right(self, current, controller_epoch), leader_epoch=current.leader_epoch)

    return next_state


def _keep_the_dead(right: Any, bite: Bite) -> Any:
    """Replicas of a dead broker stay in the ISRs."""

    def removals(context: Any, replicas: Any, controller_epoch: int) -> Any:
        plan = right(context, replicas, controller_epoch)
        if plan.writes:
            bite()
        return plans.Plan()

    return removals


def _come_back_at_once(right: Any, bite: Bite) -> Any:
    """A broker that may have lost records does not wait until it is removed from the ISRs."""

    async def until(zk: Any, clock: Any, broker_id: int, *, wait_ms: float) -> bool:
        bite()
        return True

    return until


CLUSTER_PLANTS: Final = (
    Plant(
        name="cut to the high watermark",
        seed=0,
        finds=frozenset({REPLICATED}),
        patches=((ReplicaRoles, "_follow", _cut_to_high_watermark),),
    ),
    Plant(
        name="high watermark of the fastest follower",
        seed=0,
        finds=frozenset({REPLICATED}),
        patches=((Partition, "advance", _count_one_follower),),
    ),
    Plant(
        name="high watermark falls",
        seed=0,
        finds=frozenset({"high-watermark-falls"}),
        patches=((Partition, "advance", _let_it_fall),),
    ),
    Plant(
        name="in sync before it has caught up",
        seed=0,
        finds=frozenset({REPLICATED}),
        patches=((Partition, "should_expand", _join_early),),
    ),
    Plant(
        name="no epoch check in fetch",
        seed=10,
        finds=frozenset({"same-bytes", REPLICATED, LOST}),
        patches=((reader, "_divergence", _no_divergence),),
    ),
    Plant(
        name="consumers read what is not replicated",
        seed=0,
        finds=frozenset({"seen-replicated", "seen-stays"}),
        patches=((reader, "upper_bound", _read_everything),),
    ),
    Plant(
        name="high watermark above the log",
        seed=13,
        finds=frozenset({"marks"}),
        patches=((ReplicaRoles, "_host", _mark_above_log),),
    ),
    Plant(
        name="two controllers of one epoch",
        seed=0,
        finds=frozenset({"one-controller"}),
        patches=((election, "become_controller", _same_election),),
    ),
    Plant(
        name="two leaders of one epoch",
        seed=0,
        finds=frozenset({"one-leader"}),
        patches=((elections.Elected, "next_state", _same_leader_epoch),),
    ),
    Plant(
        name="the dead stay in sync",
        seed=45,
        finds=frozenset({REPLICATED, LOST, "whole-again"}),
        patches=((plans, "isr_removals", _keep_the_dead),),
    ),
    Plant(
        name="back before the cluster has noticed",
        seed=12,
        finds=frozenset({REPLICATED}),
        patches=((app_broker, "until_out_of_sync", _come_back_at_once),),
    ),
)
