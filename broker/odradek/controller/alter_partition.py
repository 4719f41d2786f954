"""Handles AlterPartition requests on the controller. `isr_rules` decides which changes are accepted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from odradek.base.errors import (
    IneligibleReplicaError,
    InvalidUpdateVersionError,
    NotControllerError,
    ProtocolError,
    StaleBrokerEpochError,
    UnknownTopicIdError,
)
from odradek.base.types import TopicPartition
from odradek.controller.context import ControllerContext, Leadership
from odradek.controller.isr_rules import IsrChange, decide
from odradek.controller.plans import StateWrite
from odradek.controller.reign import Reign
from odradek.protocol.messages.internal import AlterPartitionRequest, AlterPartitionRequestTopicData

Message = dict[str, object]

OPERATION_NOT_ATTEMPTED: Final = 55
"""Error for leaders that use version 0 or 1, which do not know INELIGIBLE_REPLICA (KIP-841)."""


def refused(error: type[ProtocolError]) -> Message:
    """Return a response that refuses the whole request."""
    return {"throttle_time_ms": 0, "error_code": error.code, "topics": ()}


def refused_by_non_controller() -> Message:
    """Return the response of a broker that is not the controller."""
    return refused(NotControllerError)


async def alter_partitions(reign: Reign, request: AlterPartitionRequest) -> Message:
    """Write the accepted changes and inform all brokers. Return a response with the state or the error of each
    partition."""
    context = reign.context
    live = context.brokers.get(request.broker_id)
    if live is None or live.epoch != request.broker_epoch:
        return refused(StaleBrokerEpochError)
    outcomes: dict[TopicPartition, Leadership | ProtocolError] = {}
    writes: list[StateWrite] = []
    for change in _changes(context, request):
        decision = decide(context, change, reign.epoch)
        if isinstance(decision, StateWrite):
            writes.append(decision)
        else:
            outcomes[change.partition] = decision
    await reign.carry_out(writes, by_leader=True)
    for write in writes:
        current = context.leaderships.get(write.partition)
        if current is not None and current.state == write.state:
            outcomes[write.partition] = current
        else:
            outcomes[write.partition] = InvalidUpdateVersionError("the state was changed at the same time")
    # Also for a repeated request whose ISR is already the current one: the first response may have been lost.
    reign.moved |= context.reassigning & outcomes.keys()
    reign.flush()
    return {"throttle_time_ms": 0, "error_code": 0, "topics": _topics(context, request, outcomes)}


def _changes(context: ControllerContext, request: AlterPartitionRequest) -> Iterator[IsrChange]:
    for topic in request.topics:
        name = _name(context, topic)
        if name is None:
            continue
        for part in topic.partitions:
            isr = part.new_isr or tuple(member.broker_id for member in part.new_isr_with_epochs)
            yield IsrChange(
                partition=TopicPartition(name, part.partition_index),
                leader=request.broker_id,
                leader_epoch=part.leader_epoch,
                isr=isr,
                recovering=part.leader_recovery_state == 1,
                partition_epoch=part.partition_epoch,
            )


def _topics(
    context: ControllerContext,
    request: AlterPartitionRequest,
    outcomes: Mapping[TopicPartition, Leadership | ProtocolError],
) -> list[Message]:
    topics: list[Message] = []
    for topic in request.topics:
        name = _name(context, topic)
        parts = []
        for part in topic.partitions:
            number = part.partition_index
            outcome: Leadership | ProtocolError = UnknownTopicIdError("")
            if name is not None:
                outcome = outcomes[TopicPartition(name, number)]
            part_message = _partition(number, outcome)
            if topic.topic_name and isinstance(outcome, IneligibleReplicaError):
                part_message["error_code"] = OPERATION_NOT_ATTEMPTED
            parts.append(part_message)
        topics.append({"topic_name": topic.topic_name, "topic_id": topic.topic_id, "partitions": parts})
    return topics


def _name(context: ControllerContext, topic: AlterPartitionRequestTopicData) -> str | None:
    """Return the name of a topic. Versions 0 and 1 have it. Later ones have the topic id, which may be unknown."""
    return topic.topic_name or context.topic_names.get(topic.topic_id)


def _partition(number: int, outcome: Leadership | ProtocolError) -> Message:
    if isinstance(outcome, ProtocolError):
        return {
            "partition_index": number,
            "error_code": outcome.code,
            "leader_id": 0,
            "leader_epoch": 0,
            "isr": (),
            "leader_recovery_state": 0,
            "partition_epoch": 0,
        }
    return {
        "partition_index": number,
        "error_code": 0,
        "leader_id": outcome.state.leader,
        "leader_epoch": outcome.state.leader_epoch,
        "isr": outcome.state.isr,
        "leader_recovery_state": int(outcome.state.recovering),
        "partition_epoch": outcome.partition_epoch,
    }
