"""Changes of in-sync sets that leaders ask for (AlterPartition, KIP-497): which are accepted, which refused and why.

Pure: the image and one partition of a request enter; a write, the present state, or an error leaves. The rules and
their order are those of Kafka 3.9 in ZooKeeper mode, so that leaders of either make understand the answer.
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
    """What a leader wants for one partition."""

    partition: TopicPartition
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    recovering: bool
    partition_epoch: int


def decide(
    context: ControllerContext, change: IsrChange, controller_epoch: int
) -> StateWrite | Leadership | ProtocolError:
    """A write when the change is accepted; the state as it is when nothing is to change; else the error."""
    current = context.leaderships.get(change.partition)
    if current is None or context.is_being_deleted(change.partition.topic):
        return UnknownTopicOrPartitionError(f"{change.partition} has no state")
    if change.partition_epoch > current.partition_epoch or change.leader_epoch > current.state.leader_epoch:
        # The leader knows more than we do: probably another controller reigns.
        return NotControllerError(f"{change.partition} has moved on")
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
        reason="the leader changed its in-sync set",
    )


def _is_in_force(change: IsrChange, state: PartitionState) -> bool:
    """Whether a repeated request asks for what is there already, whatever partition epoch it names."""
    return (change.leader, change.isr, change.recovering) == (state.leader, state.isr, state.recovering)


def _refusal(context: ControllerContext, change: IsrChange, state: PartitionState) -> ProtocolError | None:
    if change.leader != state.leader or change.leader not in change.isr:
        return InvalidRequestError(f"broker {change.leader} may not set the in-sync set {_listed(change.isr)}")
    if change.recovering and (len(change.isr) > 1 or not state.recovering):
        return InvalidRequestError(
            "a recovering leader is alone in its in-sync set, and does not begin to recover anew"
        )
    strangers = set(change.isr) - set(context.assignment(change.partition).replicas)
    if strangers:
        return InvalidRequestError(f"{change.partition} has no replicas on {_listed(sorted(strangers))}")
    ineligible = set(change.isr) - context.eligible_brokers
    if ineligible:
        return IneligibleReplicaError(f"brokers {_listed(sorted(ineligible))} are not alive or are shutting down")
    return None


def _listed(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers)) or "nobody"
