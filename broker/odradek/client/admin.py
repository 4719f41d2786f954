"""The admin client: topics, configurations, offsets and brokers.

Access rules, quotas and users are in `access_admin`, groups in `group_admin`, delegation tokens in `token_admin`,
transactions in `transaction_admin`, partitions in `partition_admin`, features in `feature_admin`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Self, TypeVar, Unpack

from odradek.base.errors import (
    NONE,
    InvalidPartitionsError,
    NetworkError,
    ProtocolError,
    RequestTimedOutError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    error_for,
)
from odradek.base.ports import Clock
from odradek.base.topic_rules import grouped_by_topic
from odradek.base.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP, TopicPartition
from odradek.client.admin_kinds import ConfigResourceType
from odradek.client.administration.access_admin import AccessAdmin
from odradek.client.administration.admin_parts import check_answer, config_entry, described_log_dir
from odradek.client.administration.feature_admin import FeatureAdmin
from odradek.client.administration.group_admin import GroupAdmin
from odradek.client.administration.partition_admin import PartitionAdmin
from odradek.client.administration.token_admin import TokenAdmin
from odradek.client.administration.transaction_admin import TransactionAdmin
from odradek.client.cluster_client import Cluster
from odradek.client.connections import Connect
from odradek.client.keywords import ClientKeywords
from odradek.client.metadata import described_topic
from odradek.client.models import (
    BrokerDescription,
    ClusterDescription,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ListedOffset,
    LogDirDescription,
    NewTopic,
    TopicDescription,
)
from odradek.client.offsets import list_offsets
from odradek.client.settings import ClientSettings, as_settings
from odradek.protocol.codec import Message, Response
from odradek.protocol.messages.cluster import DescribeClusterResponse
from odradek.protocol.messages.configs import (
    DescribeConfigsResponse,
    IncrementalAlterConfigsResponse,
)
from odradek.protocol.messages.log_dirs import DescribeLogDirsResponse
from odradek.protocol.messages.topics import CreatePartitionsResponse, CreateTopicsResponse, DeleteTopicsResponse

_BROKER_RESOURCES: Final = (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)
OFFSET_SPECS: Final = {"earliest": EARLIEST_TIMESTAMP, "latest": LATEST_TIMESTAMP, "max-timestamp": MAX_TIMESTAMP}
"""Names that `list_offsets` accepts besides a time in milliseconds."""

T = TypeVar("T")
Outcome = tuple[str, int, str | None]
"""Name of an item, error code, error message."""


class Admin(GroupAdmin, AccessAdmin, TokenAdmin, TransactionAdmin, PartitionAdmin, FeatureAdmin):
    """Creates, describes, changes and deletes topics, configurations, groups, access rules, quotas, users and
    delegation tokens; describes brokers; describes and aborts transactions; deletes records, elects leaders and moves
    replicas; describes and updates features.

    Bound to one event loop. Call `start` first, or use `async with`; `close` is idempotent.

    Every method retries retriable errors for up to `default_api_timeout_ms`. Then it raises the last error, or
    `RequestTimedOutError`. `create_topics`, `delete_topics` and `create_partitions` change as many topics as they can
    before they raise the error of one.

    If the response to a change of topics is lost, the change is sent again. Then "already exists" counts as success of
    a creation, "unknown" of a deletion, and the requested number of partitions of an increase. So a topic that somebody
    else created at the same time counts as created.
    """

    def __init__(
        self,
        settings: ClientSettings | str | None = None,
        *,
        clock: Clock | None = None,
        connect: Connect | None = None,
        cluster: Cluster | None = None,
        **keywords: Unpack[ClientKeywords],
    ) -> None:
        """`settings` can be a bootstrap list, `host:port,host:port`. `keywords` are single settings of
        `ClientSettings`, such as `request_timeout_ms=5000`, and override `settings`.

        Raises `ConfigError` for an invalid value, and `TypeError` for an unknown keyword.

        `clock` and `connect` are for tests. With `cluster`, the others are ignored, and `close` leaves it open.
        """
        super().__init__(cluster or Cluster(as_settings(settings, **keywords), clock=clock, connect=connect))
        self._owns_cluster: Final = cluster is None
        self._settings: Final = self._cluster.settings

    async def __aenter__(self) -> Self:
        """Call `start` and return the object."""
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        """Call `close`."""
        await self.close()

    async def start(self) -> None:
        """Connect and fetch the metadata of the cluster. Raises `NetworkError` if no bootstrap server answers."""
        await self._cluster.start()

    def metrics(self) -> dict[str, float]:
        """Return the metrics of this client by the names of the Java client's, such as `request-latency-avg`.

        Times are in milliseconds. Totals count from the start, all others cover the last 30 to 60 seconds. A value is
        NaN if nothing was measured.
        """
        return self._cluster.read_metrics()

    async def close(self, *, timeout_ms: float | None = None) -> None:
        """Wait for the calls in progress, then close all connections.

        With `timeout_ms`, the calls that have not ended after that time in milliseconds raise `RequestTimedOutError`; 0
        means not to wait. If cancelled, it closes immediately.
        """
        if self._owns_cluster:
            try:
                await self._cluster.calls.drain(timeout_ms)
            finally:
                await self._cluster.close()

    # ------------------------------------------------------------------------------------------------ topics

    async def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> None:
        """Create topics. With `validate_only`, brokers only check whether the topics could be created.

        Returns when the controller has chosen the replicas. Leaders may be elected a moment later. Raises
        `TopicAlreadyExistsError`, `InvalidTopicError`, `InvalidPartitionsError`, `InvalidReplicationFactorError`,
        `InvalidConfigError` and other errors of the controller.
        """
        wanted = {topic.name: topic for topic in topics}

        def message(names: Sequence[str]) -> Message:
            return {
                "topics": [_creatable(wanted[name]) for name in names],
                "timeout_ms": self._settings.request_timeout_ms,
                "validate_only": validate_only,
            }

        await self._change(CreateTopicsResponse, message, _topic_outcomes, wanted, TopicAlreadyExistsError.code)

    async def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics with all their records. Brokers that are down delete their replicas when they return.

        Raises `UnknownTopicOrPartitionError` if there is no such topic.
        """

        def message(names: Sequence[str]) -> Message:
            return {
                "topics": [{"name": name, "topic_id": None} for name in names],
                "topic_names": names,
                "timeout_ms": self._settings.request_timeout_ms,
            }

        def outcomes(response: DeleteTopicsResponse) -> list[Outcome]:
            return [(str(r.name), r.error_code, r.error_message) for r in response.responses]

        await self._change(DeleteTopicsResponse, message, outcomes, names, UnknownTopicOrPartitionError.code)

    async def create_partitions(self, counts: Mapping[str, int], *, validate_only: bool = False) -> None:
        """Increase the numbers of partitions. `counts` has the new total of each topic.

        With `validate_only`, brokers only check the request. Raises `InvalidPartitionsError` if a topic already has as
        many partitions, and `UnknownTopicOrPartitionError`.
        """

        def message(names: Sequence[str]) -> Message:
            return {
                "topics": [{"name": name, "count": counts[name], "assignments": None} for name in names],
                "timeout_ms": self._settings.request_timeout_ms,
                "validate_only": validate_only,
            }

        def outcomes(response: CreatePartitionsResponse) -> list[Outcome]:
            return [(r.name, r.error_code, r.error_message) for r in response.results]

        before = await self._cluster.fresh_view(counts)
        grow = all(name in before.topics and len(before.topics[name].partitions) < counts[name] for name in counts)
        done_before = InvalidPartitionsError.code if grow else NONE
        await self._change(CreatePartitionsResponse, message, outcomes, counts, done_before)

    async def _change(
        self,
        expected: type[Response],
        message: Callable[[Sequence[str]], Message],
        outcomes: Callable[[Response], list[Outcome]],
        names: Iterable[str],
        done_before: int,
    ) -> None:
        """Send a change to the controller. `done_before` is the error code that means success after a lost response."""
        left = list(names)
        answer_lost = False

        async def attempt() -> ProtocolError | None:
            nonlocal answer_lost
            if not left:
                return None
            try:
                response = await self._cluster.ask_controller(expected, message(left))
            except (NetworkError, RequestTimedOutError):
                answer_lost = True
                raise
            failure: ProtocolError | None = None
            for name, code, text in outcomes(response):
                if code == NONE or (answer_lost and code == done_before):
                    left.remove(name)
                    continue
                answer_lost = answer_lost or code == RequestTimedOutError.code
                error = error_for(code, f"{name}: {text or 'refused'}")
                if failure is None or not _may_pass(error):
                    failure = error
            if failure is not None and _may_pass(failure):
                raise failure
            return failure

        failure = await self._cluster.retrying(attempt, self._cluster.deadline(f"the {expected.API_KEY.name} request"))
        if failure is not None:
            raise failure

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        """Return the names of all topics, sorted. Internal topics, such as `__consumer_offsets`, only with
        `internal`.
        """
        view = await self._cluster.fresh_view(None)
        return sorted(topic.name for topic in view.topics.values() if internal or not topic.internal)

    async def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """Return each topic with its partitions, their leaders and replicas.

        Raises `UnknownTopicOrPartitionError` if there is no such topic.
        """
        names = list(names)
        view = await self._cluster.fresh_view(names)
        return {name: described_topic(name, view.topics.get(name)) for name in names}

    # ------------------------------------------------------------------------------------------------ brokers

    async def describe_cluster(self) -> ClusterDescription:
        """Return the id of the cluster, its live brokers and the controller."""

        async def attempt() -> ClusterDescription:
            response = await self._cluster.ask_any(DescribeClusterResponse, {})
            check_answer(response.error_code, response.error_message, "the cluster cannot be described")
            return ClusterDescription(
                cluster_id=response.cluster_id,
                controller_id=response.controller_id,
                brokers=tuple(
                    BrokerDescription(node_id=b.broker_id, host=b.host, port=b.port, rack=b.rack)
                    for b in sorted(response.brokers, key=lambda broker: broker.broker_id)
                ),
            )

        return await self._retrying(attempt, "describing the cluster")

    async def describe_log_dirs(
        self, broker_ids: Iterable[int] | None = None, *, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[int, list[LogDirDescription]]:
        """Return the log directories of each broker, with the sizes of their replicas. By default, of all brokers.

        With `partitions`, only the replicas of these partitions are included.
        """
        brokers = sorted(self._cluster.view.nodes if broker_ids is None else set(broker_ids))
        message: Message = {"topics": None}
        if partitions is not None:
            topics = grouped_by_topic(partitions)
            message = {"topics": [{"topic": topic, "partitions": numbers} for topic, numbers in topics.items()]}
        answers = await asyncio.gather(*(self._log_dirs_of(broker, message) for broker in brokers))
        return dict(zip(brokers, answers, strict=True))

    async def _log_dirs_of(self, broker: int, message: Message) -> list[LogDirDescription]:
        async def attempt() -> list[LogDirDescription]:
            response = await self._cluster.ask(broker, DescribeLogDirsResponse, message)
            check_answer(response.error_code, None, f"the log directories of broker {broker} cannot be described")
            return [described_log_dir(result) for result in response.results]

        return await self._retrying(attempt, "describing log directories")

    # ------------------------------------------------------------------------------------------------ configurations

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        keys: Iterable[str] | None = None,
        synonyms: bool = False,
        documentation: bool = False,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Return the configuration of each resource by property name: all properties, or only `keys`.

        With `synonyms`, each entry has all values of the property and where they come from. With `documentation`, it
        has the description of the property (KIP-226, KIP-569).

        Raises `UnknownTopicOrPartitionError` for an unknown topic.
        """
        wanted = None if keys is None else list(keys)
        found: dict[ConfigResource, dict[str, ConfigEntry]] = {}
        for node, group in _by_broker(resources).items():
            message: Message = {
                "resources": [
                    {"resource_type": r.resource_type, "resource_name": r.name, "configuration_keys": wanted}
                    for r in group
                ],
                "include_synonyms": synonyms,
                "include_documentation": documentation,
            }
            response = await self._ask_one(node, DescribeConfigsResponse, message)
            for result in response.results:
                resource = ConfigResource(ConfigResourceType(result.resource_type), result.resource_name)
                what = f"the configuration of {resource.name!r} cannot be described"
                check_answer(result.error_code, result.error_message, what)
                found[resource] = {e.name: config_entry(e, resource.resource_type) for e in result.configs}
        return found

    async def incremental_alter_configs(
        self, changes: Mapping[ConfigResource, Sequence[ConfigChange]], *, validate_only: bool = False
    ) -> None:
        """Change single properties of resources. Other properties stay as they are.

        With `validate_only`, brokers only check the values. Raises `InvalidConfigError` for a value that is not allowed
        and `UnknownTopicOrPartitionError` for an unknown topic.
        """
        for node, group in _by_broker(changes).items():
            message: Message = {
                "resources": [
                    {
                        "resource_type": resource.resource_type,
                        "resource_name": resource.name,
                        "configs": [
                            {"name": c.name, "config_operation": c.operation, "value": c.value}
                            for c in changes[resource]
                        ],
                    }
                    for resource in group
                ],
                "validate_only": validate_only,
            }
            response = await self._ask_one(node, IncrementalAlterConfigsResponse, message)
            for result in response.responses:
                what = f"the configuration of {result.resource_name!r} cannot be altered"
                check_answer(result.error_code, result.error_message, what)

    async def _ask_one(self, node: int | None, expected: type[Response], message: Message) -> Response:
        async def attempt() -> Response:
            if node is None:
                return await self._cluster.ask_any(expected, message)
            return await self._cluster.ask(node, expected, message)

        return await self._retrying(attempt, f"the {expected.API_KEY.name} request")

    # ------------------------------------------------------------------------------------------------ offsets

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int | str], *, read_committed: bool = False
    ) -> dict[TopicPartition, ListedOffset]:
        """Return an offset of each partition. `wanted` has a time in milliseconds since 1970 UTC, or a name.

        A time finds the first record at or after it. `earliest` is the first offset, `latest` the offset after the last
        record, and `max-timestamp` the record with the highest timestamp. The offset is -1 if there is no such record.
        With `read_committed`, `latest` is the last stable offset: the records of open transactions come after it.

        Raises `UnknownTopicOrPartitionError`.
        """
        timestamps = {
            partition: OFFSET_SPECS[spec] if isinstance(spec, str) else spec for partition, spec in wanted.items()
        }
        deadline = self._cluster.deadline("listing offsets")
        return await list_offsets(self._cluster, timestamps, read_committed=read_committed, deadline=deadline)


def _may_pass(error: ProtocolError) -> bool:
    """Whether a retry of a change can succeed. The controller knows every topic, so an unknown topic is final."""
    return error.retriable and not isinstance(error, UnknownTopicOrPartitionError)


def _by_broker(resources: Iterable[ConfigResource]) -> dict[int | None, list[ConfigResource]]:
    """Group resources by the broker to ask. None stands for any broker."""
    grouped: dict[int | None, list[ConfigResource]] = {}
    for resource in resources:
        own = resource.resource_type in _BROKER_RESOURCES and resource.name
        grouped.setdefault(int(resource.name) if own else None, []).append(resource)
    return grouped


def _creatable(topic: NewTopic) -> Message:
    return {
        "name": topic.name,
        "num_partitions": topic.partitions,
        "replication_factor": topic.replication_factor,
        "assignments": [
            {"partition_index": index, "broker_ids": list(replicas)} for index, replicas in enumerate(topic.assignments)
        ],
        "configs": [{"name": name, "value": value} for name, value in topic.configs],
    }


def _topic_outcomes(response: CreateTopicsResponse) -> list[Outcome]:
    return [(topic.name, topic.error_code, topic.error_message) for topic in response.topics]
