"""Decides which ISR changes of leaders are accepted (AlterPartition, KIP-497).

Pure: takes the context and one partition of a request, and returns a write, the current state, or an error. The rules
and their order are the same as in Kafka 3.9 in ZooKeeper mode, so that leaders that run Kafka understand the response.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from odradek.base.errors import (
    FencedLeaderEpochError,
    IneligibleReplicaError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    NotControllerError,
    ProtocolError,
    UnknownTopicOrPartitionError,
)
from odradek.base.types import TopicPartition
from odradek.controller.context import ControllerContext, Leadership
from odradek.controller.plans import StateWrite
from odradek.zk.layout import PartitionState


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrChange:
    """The change that a leader requests for one partition."""

    partition: TopicPartition
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    recovering: bool
    partition_epoch: int


def decide(
    context: ControllerContext, change: IsrChange, controller_epoch: int
) -> StateWrite | Leadership | ProtocolError:
    """Return a write if the change is accepted, the current state if the ISR is already the requested one, or an
    error."""
    current = context.leaderships.get(change.partition)
    if current is None or context.is_being_deleted(change.partition.topic):
        return UnknownTopicOrPartitionError(f"{change.partition} has no state")
    if change.partition_epoch > current.partition_epoch or change.leader_epoch > current.state.leader_epoch:
        # There is probably another controller, because the leader knows a later state than this one.
        return NotControllerError(f"the leader knows a later state of {change.partition} than this controller")
    if change.leader_epoch < current.state.leader_epoch:
        return FencedLeaderEpochError(f"{change.partition} has leader epoch {current.state.leader_epoch}")
    if _is_in_force(change, current.state):
        return current
    if change.partition_epoch < current.partition_epoch:
        return InvalidUpdateVersionError(f"{change.partition} has partition epoch {current.partition_epoch}")
    return _refusal(context, change, current.state) or StateWrite(
        partition=change.partition,
        state=PartitionState(
            leader=change.leader,
            leader_epoch=change.leader_epoch,
            isr=change.isr,
            controller_epoch=controller_epoch,
            recovering=change.recovering,
        ),
        expected_epoch=current.partition_epoch,
        reason="the leader changed the ISR",
    )


def _is_in_force(change: IsrChange, state: PartitionState) -> bool:
    """Return whether the requested state is the current one, as in a repeated request. The partition epoch may
    differ."""
    return (change.leader, change.isr, change.recovering) == (state.leader, state.isr, state.recovering)


def _refusal(context: ControllerContext, change: IsrChange, state: PartitionState) -> ProtocolError | None:
    if change.leader != state.leader or change.leader not in change.isr:
        return InvalidRequestError(f"broker {change.leader} cannot set the ISR to {_listed(change.isr)}")
    if change.recovering and (len(change.isr) > 1 or not state.recovering):
        return InvalidRequestError(
            "a recovering leader must be the only member of the ISR, and it cannot start recovery again"
        )
    strangers = set(change.isr) - set(context.assignment(change.partition).replicas)
    if strangers:
        return InvalidRequestError(f"{change.partition} has no replicas on brokers {_listed(sorted(strangers))}")
    ineligible = set(change.isr) - context.eligible_brokers
    if ineligible:
        return IneligibleReplicaError(f"brokers {_listed(sorted(ineligible))} are not alive or are shutting down")
    return None


def _listed(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers)) or "no brokers"
