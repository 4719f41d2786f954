"""Plans what a LeaderAndIsr request changes on this broker: for each partition a step, or the error of its answer.

`roles` carries the plan out. Pure: planning reads the hosted partitions and changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum, auto
from typing import NamedTuple
from uuid import UUID

from odradek.base.errors import (
    InconsistentTopicIdError,
    KafkaStorageError,
    ProtocolError,
    StaleControllerEpochError,
    UnknownTopicOrPartitionError,
)
from odradek.base.types import ZERO_UUID, TopicPartition
from odradek.replication.partition import LeaderAndIsrState
from odradek.replication.partition_table import HostedPartition


class RoleStep(Enum):
    """How a partition changes."""

    LEAD = auto()
    FOLLOW = auto()
    ADOPT_TOPIC_ID = auto()
    """Only the topic id is new: an upgrade to topic ids does not start a leader epoch."""


class RoleChange(NamedTuple):
    """The planned change of one partition."""

    topic_partition: TopicPartition
    topic_id: UUID
    state: LeaderAndIsrState
    step: RoleStep | ProtocolError
    """The step, or why the state is refused."""


class RoleKnownError(StaleControllerEpochError):
    """The role is already known: a new controller sends the state of every partition again."""


def plan_roles(
    states: Iterable[tuple[TopicPartition, UUID, LeaderAndIsrState]],
    *,
    online: Mapping[TopicPartition, HostedPartition],
    offline: Collection[TopicPartition],
    broker_id: int,
) -> Iterator[RoleChange]:
    """Plan the change of each partition, one at a time: a later entry sees the effect of an earlier one."""
    for topic_partition, topic_id, state in states:
        step: RoleStep | ProtocolError
        if topic_partition in offline:
            step = KafkaStorageError(f"the log directory of {topic_partition} has failed")
        elif broker_id not in state.replicas:
            step = UnknownTopicOrPartitionError(f"this broker is not in the assignment of {topic_partition}")
        else:
            step = _step(online.get(topic_partition), topic_id, state, broker_id)
        yield RoleChange(topic_partition, topic_id, state, step)


def _step(
    partition: HostedPartition | None, topic_id: UUID, state: LeaderAndIsrState, broker_id: int
) -> RoleStep | ProtocolError:
    if partition is not None:
        known_id = partition.log.topic_id
        if known_id is not None and topic_id not in (ZERO_UUID, known_id):
            return InconsistentTopicIdError(f"{partition.topic_partition} has topic id {known_id}, not {topic_id}")
        if state.leader_epoch == partition.leader_epoch:
            if known_id is None and topic_id != ZERO_UUID:
                return RoleStep.ADOPT_TOPIC_ID
            return RoleKnownError(f"leader epoch {state.leader_epoch} is known already")
        if state.leader_epoch < partition.leader_epoch:
            return StaleControllerEpochError(
                f"leader epoch {state.leader_epoch} is older than the current epoch {partition.leader_epoch}"
            )
    return RoleStep.LEAD if state.leader == broker_id else RoleStep.FOLLOW
