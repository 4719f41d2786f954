"""Executes actions with conditional writes to ZooKeeper, on which the cluster's controller then acts.

The input is an action of `topic_plan` or a step of `lifecycle`, and the version of `/controller_epoch` on which the
decision is based. Each action is one transaction, so it is never executed partly. Each transaction also requires that
version, so no plan is executed after a new controller was elected. If anything has changed, it raises `OutdatedError`,
and the caller reads and plans again. The data is the same as that of Apache Kafka's tools.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final
from uuid import UUID

from odradek.base.errors import OdradekError
from odradek.zk import layout
from odradek.zk.layout import ConfigChangeNotification, ReplicaAssignment, TopicAssignment
from odradek.zk.ownership import MANAGED_BROKERS, ROOT, ManagedBrokers, ManagedTopic, managed_topic_path
from odradek.zk.port import BadVersion, Check, Create, Delete, NodeExists, NoNode, Operation, SetData, ZkClient
from odradek_operator.lifecycle.steps import (
    LiftThrottle,
    MoveReplicas,
    RecordBrokers,
    SetBrokerDefaults,
    SetBrokerListeners,
    ZooKeeperStep,
)
from odradek_operator.topics.topic_actions import (
    Action,
    AddPartitions,
    CreateTopic,
    DeleteTopic,
    ForgetOwnership,
    Ownership,
    RecordOwnership,
    SetConfig,
)
from odradek_operator.topics.zookeeper_state import ObservedConfig

_CONFIG_CHANGE: Final = f"{layout.CONFIG_CHANGES}/{layout.CONFIG_CHANGE_PREFIX}"


class OutdatedError(OdradekError):
    """The state has changed since the decision; the transaction was not written."""


def new_topic_id() -> UUID:
    """Return a random UUID of version 4 that does not begin with a dash, which command lines would parse as an
    option."""
    while True:
        topic_id = UUID(bytes=os.urandom(16), version=4)
        if not layout.encode_uuid(topic_id).startswith("-"):
            return topic_id


def transaction(action: Action, *, epoch_version: int, topic_id: UUID) -> list[Operation]:
    """Return the operations of the transaction for an action. `topic_id`: the id of a topic to be created."""
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
            operations.append(_config("topics", action.topic, action.config, action.config_version))
            operations.append(Create(assignment.path, assignment.encode()))
            operations.append(_record(action.topic, topic_id, action.ownership))
        case AddPartitions():
            operations.append(SetData(action.assignment.path, action.assignment.encode(), action.version))
        case SetConfig():
            operations.append(_config("topics", action.topic, action.config, action.version))
            operations.append(_notice("topics", action.topic))
            operations.append(_record(action.topic, action.topic_id, action.ownership))
        case RecordOwnership():
            operations.append(Check(layout.topic_path(action.topic), action.topic_version))
            if action.config_version is not None:
                operations.append(Check(layout.config_path("topics", action.topic), action.config_version))
            operations.append(_record(action.topic, action.topic_id, action.ownership))
        case DeleteTopic():
            operations.append(Check(layout.topic_path(action.topic), action.version))
            operations.append(Create(layout.delete_topic_path(action.topic)))
            if action.ownership_version is not None:
                operations.append(Delete(managed_topic_path(action.topic), action.ownership_version))
        case ForgetOwnership():
            operations.append(Delete(managed_topic_path(action.topic), action.version))
    return operations


def _record(topic: str, topic_id: UUID | None, ownership: Ownership) -> Operation:
    record = ManagedTopic(
        topic=topic,
        topic_id=topic_id,
        resource=ownership.resource,
        owned=ownership.owned,
        preserved=ownership.preserved,
    )
    if ownership.version is None:
        return Create(record.path, record.encode())
    return SetData(record.path, record.encode(), ownership.version)


def _config(kind: str, entity: str, values: Mapping[str, str], version: int | None) -> Operation:
    path, data = layout.config_path(kind, entity), layout.encode_config(values)
    return Create(path, data) if version is None else SetData(path, data, version)


def _notice(kind: str, entity: str) -> Operation:
    """Return the operation that notifies all brokers of a changed configuration."""
    return Create(_CONFIG_CHANGE, ConfigChangeNotification(entity_path=f"{kind}/{entity}").encode(), sequential=True)


async def carry_out(
    zk: ZkClient, action: Action, *, epoch_version: int, make_id: Callable[[], UUID] = new_topic_id
) -> None:
    """Execute one action. The znode `MANAGED_TOPICS` must exist.

    Raises `OutdatedError` if the state has changed since the decision, and `ZkError` if ZooKeeper fails.
    """
    try:
        await zk.multi(transaction(action, epoch_version=epoch_version, topic_id=make_id()))
    except (BadVersion, NodeExists, NoNode) as error:
        raise OutdatedError(f"{type(action).__name__} of {action.topic}: {error}") from error


Configs = Mapping[tuple[str, str], ObservedConfig | None]
"""Present configurations by type and name of the entity. None for a configuration that does not exist."""

_MAX_TOPICS_PER_TRANSACTION: Final = 200
"""Maximum number of topics whose throttle one transaction removes. ZooKeeper limits a request to 1 MB."""


def configs_to_read(step: ZooKeeperStep) -> list[tuple[str, str]]:
    """Return the configurations that must be read before a step, because it changes some of their keys."""
    match step:
        case MoveReplicas():
            return [("brokers", layout.DEFAULT_ENTITY), *(("topics", topic) for topic in sorted(step.topic_configs))]
        case LiftThrottle():
            return [("brokers", layout.DEFAULT_ENTITY), *(("topics", topic) for topic in sorted(step.topics))]
        case SetBrokerDefaults() | RecordBrokers() | SetBrokerListeners():
            return []


def transactions(step: ZooKeeperStep, present: Configs, *, epoch_version: int) -> list[list[Operation]]:
    """Return the transactions of a step, in order. `present`: the configurations that `configs_to_read` names.

    A reassignment and its throttle are written in one transaction, which fails if another reassignment is requested. A
    throttle is removed from the topics first. The key that marks it as the operator's is removed last.
    """
    check: list[Operation] = [Check(layout.CONTROLLER_EPOCH, epoch_version)]
    defaults = ("brokers", layout.DEFAULT_ENTITY)
    match step:
        case MoveReplicas():
            operations = [
                *check,
                *(Check(layout.topic_path(topic), version) for topic, version in step.versions.items()),
            ]
            operations += _changed(present, defaults, add=step.broker_defaults)
            for topic, values in sorted(step.topic_configs.items()):
                operations += _changed(present, ("topics", topic), add=values)
            operations.append(Create(layout.REASSIGN_PARTITIONS, layout.encode_reassignment(step.targets)))
            return [operations]
        case LiftThrottle():
            writes = []
            topics = sorted(step.topics.items())
            for first in range(0, len(topics), _MAX_TOPICS_PER_TRANSACTION):
                operations = [*check]
                for topic, keys in topics[first : first + _MAX_TOPICS_PER_TRANSACTION]:
                    operations += _changed(present, ("topics", topic), remove=keys)
                writes.append(operations)
            writes.append([*check, *_changed(present, defaults, remove=step.broker_defaults)])
            return [operations for operations in writes if len(operations) > len(check)]
        case SetBrokerDefaults():
            record = _brokers_record(step.record, step.record_version)
            return [[*check, _config(*defaults, step.config, step.version), _notice(*defaults), record]]
        case RecordBrokers():
            if step.config_version is not None:
                check.append(Check(layout.config_path(*defaults), step.config_version))
            return [[*check, _brokers_record(step.record, step.record_version)]]
        case SetBrokerListeners():
            entity = ("brokers", str(step.broker))
            return [[*check, _config(*entity, step.config, step.version), _notice(*entity)]]


def _brokers_record(record: ManagedBrokers, version: int | None) -> Operation:
    data = record.encode()
    return Create(MANAGED_BROKERS, data) if version is None else SetData(MANAGED_BROKERS, data, version)


def _changed(
    present: Configs,
    entity: tuple[str, str],
    *,
    add: Mapping[str, str] = MappingProxyType({}),
    remove: Iterable[str] = (),
) -> list[Operation]:
    """Return the operations that change some keys of a configuration and notify brokers; none if nothing changes."""
    observed = present[entity]
    before = {} if observed is None else observed.values
    gone = set(remove)
    values = {key: value for key, value in before.items() if key not in gone} | dict(add)
    if values == before:
        return []
    return [_config(*entity, values, None if observed is None else observed.version), _notice(*entity)]


async def carry_out_step(zk: ZkClient, step: ZooKeeperStep, *, epoch_version: int) -> None:
    """Execute one step. Raises the errors of `carry_out`, and `LayoutError` for an invalid configuration."""
    paths = {layout.config_path(*entity): entity for entity in configs_to_read(step)}
    found = await zk.get_many(paths)
    present = {
        entity: None
        if (znode := found[path]) is None
        else ObservedConfig(values=layout.decode_config(path, znode[0]), version=znode[1].version)
        for path, entity in paths.items()
    }
    if isinstance(step, SetBrokerDefaults | RecordBrokers):
        await zk.ensure_path(ROOT)
    try:
        for operations in transactions(step, present, epoch_version=epoch_version):
            await zk.multi(operations)
    except (BadVersion, NodeExists, NoNode) as error:
        raise OutdatedError(f"{type(step).__name__}: {error}") from error
