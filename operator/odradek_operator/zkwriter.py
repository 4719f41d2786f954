"""Carries actions out: conditional writes to ZooKeeper, which the cluster's controller then acts upon.

Enters: actions of `plan` and the version of `/controller_epoch` that the plan was made from. Leaves: znodes, or an
`OutdatedError` when anything has changed since, upon which the caller reads and plans again. Each action is one
transaction that also demands the controller epoch's version, so a plan never outlives the controller it was made
under, and nothing is ever half done. What it writes is what Apache Kafka's own tools write.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final
from uuid import UUID

from odradek.base.errors import OdradekError
from odradek.zk import layout
from odradek.zk.layout import ConfigChange, ReplicaAssignment, TopicAssignment
from odradek.zk.port import BadVersion, Check, Create, NodeExists, NoNode, Operation, SetData, ZkClient
from odradek_operator.actions import Action, AddPartitions, CreateTopic, DeleteTopic, SetConfig

_CONFIG_CHANGE: Final = f"{layout.CONFIG_CHANGES}/{layout.CONFIG_CHANGE_PREFIX}"


class OutdatedError(OdradekError):
    """What the plan was made from has changed meanwhile; nothing was written."""


def new_topic_id() -> UUID:
    """A random id (version 4) whose text does not begin with a dash, so that command lines take it for no option."""
    while True:
        topic_id = UUID(bytes=os.urandom(16), version=4)
        if not layout.encode_uuid(topic_id).startswith("-"):
            return topic_id


def transaction(action: Action, *, epoch_version: int, topic_id: UUID) -> list[Operation]:
    """The writes of an action; all or none. `topic_id` is for a topic that is made."""
    operations: list[Operation] = [Check(layout.CONTROLLER_EPOCH, epoch_version)]
    match action:
        case CreateTopic():
            assignment = TopicAssignment(
                topic=action.topic,
                topic_id=topic_id,
                partitions={
                    number: ReplicaAssignment(replicas=tuple(replicas))
                    for number, replicas in action.assignment.items()
                },
            )
            operations += _config(action.topic, layout.encode_config(action.config), action.config_version)
            operations.append(Create(assignment.path, assignment.encode()))
        case AddPartitions():
            operations.append(SetData(action.assignment.path, action.assignment.encode(), action.version))
        case SetConfig():
            operations += _config(action.topic, layout.encode_config(action.config), action.version)
            operations.append(
                Create(_CONFIG_CHANGE, ConfigChange(entity_path=f"topics/{action.topic}").encode(), sequential=True)
            )
        case DeleteTopic():
            operations.append(Check(layout.topic_path(action.topic), action.version))
            operations.append(Create(layout.delete_topic_path(action.topic)))
    return operations


def _config(topic: str, data: bytes, version: int | None) -> list[Operation]:
    path = layout.config_path("topics", topic)
    return [Create(path, data) if version is None else SetData(path, data, version)]


async def carry_out(
    zk: ZkClient, action: Action, *, epoch_version: int, make_id: Callable[[], UUID] = new_topic_id
) -> None:
    """Write one action. Raises `OutdatedError` when the state is another than planned from, and `ZkError`."""
    try:
        await zk.multi(transaction(action, epoch_version=epoch_version, topic_id=make_id()))
    except (BadVersion, NodeExists, NoNode) as error:
        raise OutdatedError(f"{type(action).__name__} of {action.topic}: {error}") from error
