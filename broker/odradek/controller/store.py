"""The controller's reads and writes in ZooKeeper.

Reads are batched. Every write is a transaction that first checks the version of `/controller_epoch`. If that check
fails, another broker is the controller, and `ControllerMovedError` is raised. This module makes no decisions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from odradek.base.types import BrokerEpoch, TopicPartition
from odradek.controller.context import Leadership, LiveBroker, slices
from odradek.controller.controller_election import ControllerMovedError, Election
from odradek.controller.plans import StateWrite
from odradek.zk import layout
from odradek.zk.layout import (
    BrokerRegistration,
    Feature,
    LayoutError,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
)
from odradek.zk.port import (
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Result,
    SetData,
    TooLarge,
    ZkClient,
    ZkError,
    ZnodeStat,
)

log = logging.getLogger(__name__)

_DELETES_PER_TRANSACTION = 500
"""Number of operations that keeps a transaction well below ZooKeeper's limit of 1 MiB."""
_STATES_PER_TRANSACTION = 50
"""States per transaction. Each transaction, even a small one, costs both sides about 200 µs."""


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a successful write, with the new version of the znode."""

    partition_epoch: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """The result of a write that failed because the znode had changed. `found` is its state, or None without a
    znode."""

    found: Leadership | None


class Store:
    """The access of one reign to ZooKeeper. The controller epoch fences every write."""

    def __init__(self, zk: ZkClient, election_result: Election) -> None:
        """`election_result` is the result of the controller election."""
        self._zk = zk
        self._election = election_result
        self._fence = Check(layout.CONTROLLER_EPOCH, election_result.epoch_version)
        self.transactions = 0
        """Number of write transactions that were sent, including those in flight."""

    # Reading

    async def brokers(self) -> dict[int, LiveBroker]:
        """Read all registered brokers. Logs and ignores invalid registrations."""
        names = await self._zk.children_or_none(layout.BROKER_IDS) or []
        ids = {layout.broker_path(int(name)): int(name) for name in names if name.isdecimal()}
        live = {}
        for path, found in (await self._zk.get_many(ids)).items():
            if found is None:
                continue
            try:
                registration = BrokerRegistration.decode(ids[path], found[0])
            except LayoutError as error:
                log.error("ignoring an invalid broker registration: %s", error)
                continue
            live[ids[path]] = LiveBroker(registration, BrokerEpoch(found[1].czxid))
        return live

    async def topic_names(self) -> list[str]:
        """Read the names of all topics."""
        return await self._zk.children_or_none(layout.TOPICS) or []

    async def topics(self, names: Iterable[str]) -> dict[str, TopicAssignment]:
        """Read ids and assignments of topics. Topics that do not exist or whose znode is invalid are omitted."""
        paths = {layout.topic_path(name): name for name in names}
        topics = {}
        for path, found in (await self._zk.get_many(paths)).items():
            if found is None:
                continue
            try:
                topics[paths[path]] = TopicAssignment.decode(paths[path], found[0])
            except LayoutError as error:
                log.error("ignoring an invalid topic: %s", error)
        return topics

    async def leaderships(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Leadership]:
        """Read the states of those partitions that have one. Raises `ControllerMovedError` if a later controller wrote
        one."""
        states: dict[TopicPartition, Leadership] = {}
        for some in slices(partitions):
            states |= await self._leaderships(some)
        return states

    async def _leaderships(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Leadership]:
        paths = {layout.partition_state_path(partition): partition for partition in partitions}
        states = {}
        for path, found in (await self._zk.get_many(paths)).items():
            if found is None:
                continue
            try:
                state = PartitionState.decode(paths[path], found[0])
            except LayoutError as error:
                log.error("ignoring an invalid partition state: %s", error)
                continue
            if state.controller_epoch > self._election.epoch:
                raise ControllerMovedError(f"{path} was written by a controller of epoch {state.controller_epoch}")
            states[paths[path]] = Leadership(state, found[1].version, found[1].mzxid)
        return states

    async def deletions(self) -> list[str]:
        """Read the topics that are marked for deletion."""
        return await self._zk.children_or_none(layout.DELETE_TOPICS) or []

    async def topic_settings(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Read the settings that topics override."""
        paths = {layout.config_path("topics", topic): topic for topic in topics}
        settings = {}
        for path, found in (await self._zk.get_many(paths)).items():
            settings[paths[path]] = {} if found is None else _decoded_settings(path, found[0])
        return settings

    async def preferred_elections(self) -> frozenset[TopicPartition] | None:
        """Read the partitions in `/admin/preferred_replica_election`. Returns None if the znode does not exist."""
        found = await self._zk.get_or_none(layout.PREFERRED_ELECTION)
        if found is None:
            return None
        try:
            return layout.decode_partitions(layout.PREFERRED_ELECTION, found[0])
        except LayoutError as error:
            log.error("ignoring an invalid request for preferred leader elections: %s", error)
            return frozenset()

    async def reassignments(self) -> dict[TopicPartition, tuple[int, ...]] | None:
        """Read `/admin/reassign_partitions`. Returns None if the znode does not exist, an empty mapping if it is
        invalid."""
        found = await self._zk.get_or_none(layout.REASSIGN_PARTITIONS)
        return None if found is None else _decoded_reassignments(found[0])

    async def dynamic_broker_settings(self, broker: int) -> dict[str, str]:
        """Read the dynamic settings of one broker, which override those of all brokers (KIP-226)."""
        names = (layout.DEFAULT_ENTITY, str(broker))
        paths = [layout.config_path("brokers", name) for name in names]
        found = await self._zk.get_many(paths)
        merged: dict[str, str] = {}
        for path in paths:
            content = found[path]
            merged |= {} if content is None else _decoded_settings(path, content[0])
        return merged

    async def feature(self) -> tuple[Feature, int] | None:
        """Read the finalized features and the version of their znode. Returns None if the znode does not exist."""
        found = await self._zk.get_or_none(layout.FEATURE)
        return None if found is None else (Feature.decode(found[0]), found[1].version)

    async def notices(self, parent: str) -> dict[str, bytes]:
        """Read the children of `/isr_change_notification` or `/log_dir_event_notification`. Returns their data by
        path."""
        names = await self._zk.children_or_none(parent) or []
        found = await self._zk.get_many(f"{parent}/{name}" for name in names)
        return {path: value[0] for path, value in found.items() if value is not None}

    # Writing

    async def write_states(self, writes: Sequence[StateWrite]) -> dict[TopicPartition, Written | Conflict]:
        """Create or change states, each only if its znode has the expected version.

        States are written in groups, because conflicts are rare. If a group fails, its states are written separately.
        """
        new = sorted({write.partition.topic for write in writes if write.expected_epoch is None})
        await self._make_all([layout.partitions_path(topic) for topic in new])
        groups = list(slices(writes, _STATES_PER_TRANSACTION))
        outcomes = await self._transact([[one for write in group for one in _operations(write)] for group in groups])
        results: dict[TopicPartition, Written | Conflict] = {}
        alone: list[StateWrite] = []
        for group, outcome in zip(groups, outcomes, strict=True):
            if isinstance(outcome, BadVersion | NodeExists | NoNode):
                alone += group
            elif isinstance(outcome, ZkError):
                raise outcome
            else:
                results |= _written(group, outcome)
        return results | await self._write_each(alone) if alone else results

    async def _write_each(self, writes: Sequence[StateWrite]) -> dict[TopicPartition, Written | Conflict]:
        outcomes = await self._transact([_operations(write) for write in writes])
        # The parent may exist without a state, if a Kafka controller stopped after it created the parent.
        again = [
            index
            for index, (write, outcome) in enumerate(zip(writes, outcomes, strict=True))
            if isinstance(outcome, NodeExists) and outcome.path == layout.partition_path(write.partition)
        ]
        second = await self._transact([_operations(writes[index])[1:] for index in again])
        for index, outcome in zip(again, second, strict=True):
            outcomes[index] = outcome
        return await self._results(writes, outcomes)

    async def _results(
        self, writes: Sequence[StateWrite], outcomes: Sequence[list[Result] | ZkError]
    ) -> dict[TopicPartition, Written | Conflict]:
        results: dict[TopicPartition, Written | Conflict] = {}
        failed = []
        for write, outcome in zip(writes, outcomes, strict=True):
            if isinstance(outcome, BadVersion | NodeExists | NoNode):
                failed.append(write.partition)
            elif isinstance(outcome, ZkError):
                raise outcome
            else:
                results[write.partition] = _version(outcome[-1])
        found = await self.leaderships(failed)
        return results | {partition: Conflict(found.get(partition)) for partition in failed}

    async def set_assignments(
        self, changes: Mapping[TopicPartition, ReplicaAssignment]
    ) -> dict[str, NoNode | TooLarge]:
        """Change only the assignments of these partitions. Returns the error of each topic that failed.

        A topic fails if it does not exist, its znode is invalid, or the znode would become too large for ZooKeeper.
        Each write is conditional on the version that was read, so partitions that others add at the same time are kept.
        """
        by_topic: dict[str, dict[int, ReplicaAssignment]] = {}
        for partition, assignment in changes.items():
            by_topic.setdefault(partition.topic, {})[partition.partition] = assignment
        failed: dict[str, NoNode | TooLarge] = {}
        while by_topic:
            writes, missing = await self._assignment_writes(by_topic)
            outcomes = dict(zip(writes, await self._transact([[write] for write in writes.values()]), strict=True))
            again = set()
            for topic, outcome in outcomes.items():
                if isinstance(outcome, NoNode | TooLarge):
                    failed[topic] = outcome
                elif isinstance(outcome, BadVersion):
                    again.add(topic)
                elif isinstance(outcome, ZkError):
                    raise outcome
            failed |= {topic: NoNode("the topic does not exist", layout.topic_path(topic)) for topic in missing}
            by_topic = {topic: by_topic[topic] for topic in again}
        return failed

    async def _assignment_writes(
        self, by_topic: Mapping[str, Mapping[int, ReplicaAssignment]]
    ) -> tuple[dict[str, SetData], set[str]]:
        found = await self._zk.get_many(layout.topic_path(topic) for topic in by_topic)
        writes, missing = {}, set()
        for topic, assignments in by_topic.items():
            content = found[layout.topic_path(topic)]
            if content is None:
                missing.add(topic)
                continue
            data, stat = content
            try:
                current = TopicAssignment.decode(topic, data)
            except LayoutError as error:
                log.error("the assignment of a topic cannot be changed: %s", error)
                missing.add(topic)
                continue
            changed = replace(current, partitions={**current.partitions, **assignments})
            writes[topic] = SetData(changed.path, changed.encode(), stat.version)
        return writes, missing

    async def drop_reassignments(self, is_over: Callable[[TopicPartition, tuple[int, ...]], bool]) -> None:
        """Remove finished entries from `/admin/reassign_partitions`, and the znode if no entry is left."""
        path = layout.REASSIGN_PARTITIONS
        while True:
            found = await self._zk.get_or_none(path)
            if found is None:
                return
            requested, stat = _decoded_reassignments(found[0]), found[1]
            left = {part: replicas for part, replicas in requested.items() if not is_over(part, replicas)}
            if left and len(left) == len(requested):
                return
            change = SetData(path, layout.encode_reassignment(left), stat.version)
            try:
                await self._one([change if left else Delete(path, stat.version)])
            except (BadVersion, NoNode):
                continue
            return

    async def put_feature(self, feature: Feature, version: int | None) -> None:
        """Replace `/feature` if it has this version, or create it if `version` is None. Raises `BadVersion`,
        `NodeExists`."""
        data = feature.encode()
        change = Create(layout.FEATURE, data) if version is None else SetData(layout.FEATURE, data, version)
        await self._one([change])

    async def set_topic(self, topic: TopicAssignment) -> None:
        """Write the id and the assignment of an existing topic."""
        await self._one([SetData(topic.path, topic.encode())])

    async def delete_topic(self, topic: str) -> None:
        """Remove a topic's znodes, its configuration and its deletion mark.

        The last three are removed in one transaction. So a topic with the same name that is created immediately after
        keeps its configuration, and the next controller does not apply the mark to it.
        """
        while not (await self._delete_partitions(topic) and await self._delete_root(topic)):
            log.debug("the znodes of topic %s changed while they were removed", topic)

    async def _delete_partitions(self, topic: str) -> bool:
        """Try to remove the znodes. Return False if they changed meanwhile and must be read again."""
        partitions = layout.partitions_path(topic)
        numbers = await self._zk.children_or_none(partitions)
        below = [f"{partitions}/{number}" for number in numbers or []]
        children = await self._zk.children_many(below)
        paths = [f"{path}/{name}" for path, names in children.items() for name in names or []]
        paths += [*below, *([] if numbers is None else [partitions])]
        for some in slices(paths, _DELETES_PER_TRANSACTION):
            if not await self._delete_together([Delete(path) for path in some]):
                return False
        return True

    async def _delete_root(self, topic: str) -> bool:
        paths = (layout.topic_path(topic), layout.config_path("topics", topic), layout.delete_topic_path(topic))
        found = await self._zk.get_many(paths)
        return await self._delete_together([Delete(path, node[1].version) for path in paths if (node := found[path])])

    async def _delete_together(self, deletions: Sequence[Delete]) -> bool:
        try:
            await self._one(deletions)
        except (NoNode, NotEmpty, BadVersion):
            return False
        return True

    async def delete_each(self, paths: Iterable[str]) -> None:
        """Remove znodes, each in its own transaction. Ignores znodes that do not exist."""
        for outcome in await self._transact([[Delete(path)] for path in paths]):
            if isinstance(outcome, ZkError) and not isinstance(outcome, NoNode):
                raise outcome

    async def _make_all(self, paths: Sequence[str]) -> None:
        for outcome in await self._transact([[Create(path)] for path in paths]):
            if isinstance(outcome, ZkError) and not isinstance(outcome, NodeExists):
                raise outcome

    async def _one(self, operations: Sequence[Operation]) -> list[Result]:
        outcome = (await self._transact([operations]))[0]
        if isinstance(outcome, ZkError):
            raise outcome
        return outcome

    async def _transact(self, transactions: Sequence[Sequence[Operation]]) -> list[list[Result] | ZkError]:
        self.transactions += len(transactions)
        outcomes = await self._zk.multi_many([self._fence, *operations] for operations in transactions)
        for outcome in outcomes:
            if isinstance(outcome, ZkError) and outcome.path == layout.CONTROLLER_EPOCH:
                raise ControllerMovedError(
                    f"another controller has replaced the controller of epoch {self._election.epoch}"
                )
        return outcomes


def _decoded_settings(path: str, data: bytes) -> dict[str, str]:
    """Decode the overrides in a znode. An invalid znode counts as empty, so that it does not end the reign."""
    try:
        return layout.decode_config(path, data)
    except LayoutError as error:
        log.error("ignoring invalid settings: %s", error)
        return {}


def _decoded_reassignments(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    try:
        return layout.decode_reassignment(data)
    except LayoutError as error:
        log.error("ignoring an invalid %s: %s", layout.REASSIGN_PARTITIONS, error)
        return {}


_OPERATIONS_TO_MAKE = 2


def _operations(write: StateWrite) -> list[Operation]:
    path = layout.partition_state_path(write.partition)
    if write.expected_epoch is None:
        return [Create(layout.partition_path(write.partition)), Create(path, write.state.encode())]
    return [SetData(path, write.state.encode(), write.expected_epoch)]


def _written(writes: Sequence[StateWrite], results: Sequence[Result]) -> dict[TopicPartition, Written]:
    """Run a transaction and return its results. The first result belongs to the epoch check."""
    position, written = 0, {}
    for write in writes:
        position += _OPERATIONS_TO_MAKE if write.expected_epoch is None else 1
        written[write.partition] = _version(results[position])
    return written


def _version(result: Result) -> Written:
    """Return the new version of a znode: 0 if it was created, otherwise the version in the result."""
    return Written(result.version if isinstance(result, ZnodeStat) else 0)


def topics_without_id(topics: Mapping[str, TopicAssignment]) -> list[TopicAssignment]:
    """Return the topics without an id, which Kafka before 2.8 created. The controller gives each an id."""
    return [topic for topic in topics.values() if topic.topic_id is None]
