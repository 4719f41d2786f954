"""A client's view of the cluster: metadata, and requests to nodes, the controller and coordinators, with retries.

Invariants: there is at most one connection for each node and purpose; leader epochs in the view never decrease
(`metadata`); no request outlives `close`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from enum import IntEnum
from typing import Final, Self, TypeVar
from uuid import UUID

from odradek.base.errors import (
    BY_CODE,
    NONE,
    AuthenticationError,
    BrokerNotAvailableError,
    CoordinatorNotAvailableError,
    NetworkError,
    NotControllerError,
    ProtocolError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    error_for,
)
from odradek.base.ports import Clock
from odradek.base.system_ports import SystemClock
from odradek.base.tasks import TaskOwner, finish
from odradek.base.types import TopicPartition
from odradek.client.connections import Connect, Connections, Link, connector
from odradek.client.metadata import Backoff, ClusterView, Node, RefreshSchedule, TopicView, view_of
from odradek.client.running_calls import RunningCalls
from odradek.client.settings import ClientSettings, as_settings
from odradek.client.telemetry.client_metrics import ClientMetrics
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import Message, Response
from odradek.protocol.feature_levels import TRANSACTION_VERSION
from odradek.protocol.messages.cluster import MetadataResponse
from odradek.protocol.messages.groups import FindCoordinatorResponse

T = TypeVar("T")

ANY_VERSION: Final = (0, 2**15 - 1)
"""The lowest and the highest version of an API."""
_METADATA_BY_ID: Final = 12
"""First version of Metadata that finds topics by id (KIP-516)."""
_FIND_BY_TYPE: Final = 1
"""First version of FindCoordinator with a key type (KIP-98)."""


class Coordinated(IntEnum):
    """What a coordinator is responsible for: the key type of FindCoordinator."""

    GROUP = 0
    TRANSACTIONAL_ID = 1

    def __str__(self) -> str:
        """Return the kind for messages."""
        return self.name.lower().replace("_", " ")


class Deadline:
    """The deadline of a call, including its retries."""

    __slots__ = ("_at_ms", "_clock", "_what")

    def __init__(self, clock: Clock, timeout_ms: float, what: str) -> None:
        """`what` describes the call in the error message, such as "describing the cluster"."""
        self._clock = clock
        self._at_ms = clock.monotonic_ms() + timeout_ms
        self._what = what

    def left_ms(self) -> float:
        """Return the remaining milliseconds; 0 if it has passed."""
        return max(0.0, self._at_ms - self._clock.monotonic_ms())

    def passed(self) -> RequestTimedOutError:
        """Return the error to raise if it has passed."""
        return RequestTimedOutError(f"{self._what} timed out")


class Cluster:
    """Connections, metadata and retries. Call `start` first; `close` is idempotent."""

    def __init__(
        self, settings: ClientSettings | str, *, clock: Clock | None = None, connect: Connect | None = None
    ) -> None:
        """`clock` and `connect` are for tests."""
        self.settings: Final = as_settings(settings)
        self.clock: Final = clock or SystemClock()
        self.backoff: Final = Backoff(self.settings.retry_backoff_ms, self.settings.retry_backoff_max_ms)
        self._bootstrap = self.settings.bootstrap_addresses()
        self._connections = Connections(self.settings, self.clock, connect or connector(self.settings, self.clock))
        self._schedule = RefreshSchedule(self.backoff, self.settings.metadata_max_age_ms)
        self._view = ClusterView()
        self._topics: set[str] = set()
        self._follows_all = False
        self._coordinators: dict[tuple[Coordinated, str], int] = {}
        self._tasks = TaskOwner()
        self._wake = asyncio.Event()
        self._changed: asyncio.Future[None] | None = None
        self._last_error: ProtocolError | None = None
        self._started = False
        self._closed = False
        self.metrics: Final = ClientMetrics(self.clock)
        self.calls: Final = RunningCalls()
        """The calls of `retrying` in progress."""
        self.on_change: list[Callable[[ClusterView], None]] = []
        """Functions that are called when the view has changed."""

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close."""
        await self.close()

    @property
    def view(self) -> ClusterView:
        """The current metadata."""
        return self._view

    @property
    def transaction_version(self) -> int:
        """The finalized level of the feature `transaction.version`, as the latest connections know it (KIP-890)."""
        return self._connections.features.levels.get(TRANSACTION_VERSION, 0)

    async def start(self) -> None:
        """Read the metadata. Raises `NetworkError` if no bootstrap server answers in `default_api_timeout_ms`, and
        `AuthenticationError` at once."""
        if self._started:
            return
        self._started = True
        self._tasks.spawn(self._refresh_loop(), name="metadata")
        try:
            await self._until(lambda view: bool(view.nodes), self.deadline("the first metadata request"))
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End all tasks and close all connections."""
        if self._closed:
            return
        self._closed = True
        self._settle_waiters()
        await finish(self._shut_down())

    async def _shut_down(self) -> None:
        try:
            await self._tasks.close()
        finally:
            await self._connections.close()

    def deadline(self, what: str, timeout_ms: float | None = None) -> Deadline:
        """Return a deadline from now, by default after `default_api_timeout_ms`."""
        return Deadline(self.clock, self.settings.default_api_timeout_ms if timeout_ms is None else timeout_ms, what)

    # ------------------------------------------------------------------------------------------------ metadata

    def follow(self, topics: Iterable[str]) -> None:
        """Include these topics in the metadata from now on."""
        new = set(topics) - self._topics
        if new:
            self._topics |= new
            self._schedule.request(urgent=True)
            self._wake.set()

    def follow_all(self, wanted: bool) -> None:
        """Include all topics in the metadata from now on, or only those of `follow` again."""
        self._follows_all = wanted

    def request_refresh(self) -> None:
        """Refresh the metadata soon, because it is out of date."""
        self._schedule.request()
        self._wake.set()

    async def topic(self, name: str, deadline: Deadline | None = None) -> TopicView:
        """Return the metadata of a topic. Waits until the topic exists and has partitions.

        Raises a final error immediately. Raises a retriable one, such as `UnknownTopicOrPartitionError`, when the
        deadline passes.
        """
        self.follow([name])
        try:
            await self._until(lambda view: _settled(view.topics.get(name)), deadline or self.deadline(f"topic {name}"))
        except RequestTimedOutError:
            found = self._view.topics.get(name)
            if found is None and self._follows_all:
                raise error_for(UnknownTopicOrPartitionError.code, f"topic {name} does not exist") from None
            if found is None or not found.error_code:
                raise
            raise error_for(found.error_code, f"topic {name} cannot be used") from None
        topic = self._view.topics[name]
        if topic.error_code and not topic.partitions:
            raise error_for(topic.error_code, f"topic {name} cannot be used")
        return topic

    async def fresh_view(self, topics: Iterable[str] | None = None, deadline: Deadline | None = None) -> ClusterView:
        """Request metadata now, for these topics or for all."""
        wanted = None if topics is None else set(topics)
        deadline = deadline or self.deadline("metadata")
        return await self.retrying(lambda: self._ask_metadata(wanted), deadline)

    async def topic_names(self, topic_ids: Iterable[UUID]) -> dict[UUID, str]:
        """Return the names of topics by id, without those that the broker does not know (yet). Does not retry.

        Raises `UnsupportedVersionError` if the broker has no request for that (KIP-516).
        """
        message = {
            "topics": [{"name": None, "topic_id": topic_id} for topic_id in sorted(topic_ids)],
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        response = await self.ask_any(MetadataResponse, message, at_least=_METADATA_BY_ID)
        return {topic.topic_id: topic.name for topic in response.topics if topic.name and not topic.error_code}

    async def _until(self, enough: Callable[[ClusterView], bool], deadline: Deadline) -> None:
        while not enough(self._view):
            if self._closed:
                raise NetworkError("the client is closed")
            self.request_refresh()
            if self._changed is None:
                self._changed = asyncio.get_running_loop().create_future()
            try:
                await asyncio.wait_for(asyncio.shield(self._changed), deadline.left_ms() / 1000)
            except TimeoutError:
                raise (self._last_error or deadline.passed()) from None

    async def _refresh_loop(self) -> None:
        while True:
            self._wake.clear()
            due_ms = self._schedule.due_in_ms(self.clock.monotonic_ms())
            if due_ms > 0:
                await self._wait_for_wake(due_ms)
                continue
            try:
                await self._ask_metadata(None if self._follows_all else set(self._topics))
            except ProtocolError as error:
                self._last_error = error
                self._schedule.failed(self.clock.monotonic_ms(), self.clock.random())
                if isinstance(error, AuthenticationError):
                    self._fail_waiters(error)

    async def _wait_for_wake(self, due_ms: float) -> None:
        timer = self.clock.call_later(due_ms, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    async def _ask_metadata(self, topics: set[str] | None) -> ClusterView:
        message = {
            "topics": None if topics is None else [{"name": name, "topic_id": None} for name in sorted(topics)],
            "allow_auto_topic_creation": self.settings.allow_auto_create_topics,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        response = await self.ask_any(MetadataResponse, message)
        answer = view_of(response)
        if not answer.nodes:
            raise BrokerNotAvailableError("a broker returned metadata without any live broker")
        self._last_error = None
        self._schedule.succeeded(self.clock.monotonic_ms(), self.clock.random())
        self._set_view(self._view.updated(answer, complete=topics is None))
        return self._view

    def _set_view(self, view: ClusterView) -> None:
        self._view = view
        self._settle_waiters()
        for callback in self.on_change:
            callback(view)

    def note_leader(self, topic_partition: TopicPartition, leader: int, leader_epoch: int) -> None:
        """Use a newer leader from a response (KIP-951)."""
        view = self._view.with_leader(topic_partition, leader, leader_epoch)
        if view is not self._view:
            self._set_view(view)

    def _settle_waiters(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)
        self._changed = None

    def _fail_waiters(self, error: AuthenticationError) -> None:
        """End all waits for metadata: a retry does not help. Later calls try again."""
        changed, self._changed = self._changed, None
        if changed is not None and not changed.done():
            changed.set_exception(error)
            changed.exception()  # Perhaps nobody waits any more.

    # ------------------------------------------------------------------------------------------------ requests

    async def connection(self, node_id: int, purpose: str = "") -> Link:
        """Return the connection to a node for a purpose. A broker answers in order, so a waiting request blocks
        others.
        """
        return await self._connections.get(self._node(node_id), purpose)

    def read_metrics(self) -> dict[str, float]:
        """Return the metrics of the client by name."""
        return {**self.metrics.read(), "connection-count": self._connections.open_count}

    def _node(self, node_id: int) -> Node:
        node = self._view.nodes.get(node_id)
        if node is None:
            self.request_refresh()
            raise NetworkError(f"broker {node_id} is not among the live brokers")
        return node

    async def ask(
        self,
        node_id: int,
        expected: type[Response],
        message: Message,
        *,
        purpose: str = "",
        timeout_ms: float | None = None,
        versions: tuple[int, int] = ANY_VERSION,
    ) -> Response:
        """Send a request to one broker and return its response, an object of the class `expected`. Does not retry.

        `timeout_ms` replaces `request_timeout_ms`. `versions` are the lowest and the highest version of the API that
        has all of the message. Raises `NetworkError`, `RequestTimedOutError`, and `UnsupportedVersionError` if the
        broker has only lower versions. The caller checks the error codes in the response.
        """
        channel = await self.connection(node_id, purpose)
        version = common_version(channel, expected.API_KEY, versions)
        started_ms = self.clock.monotonic_ms()
        response = await channel.ask(expected, version, message, timeout_ms=timeout_ms)
        self.metrics.answered(expected.API_KEY, started_ms)
        return response

    async def ask_any(self, expected: type[Response], message: Message, *, at_least: int = 0) -> Response:
        """Send a request to any broker: known ones in random order, then the bootstrap list. Raises the last error.

        `at_least` is the lowest version of the API that has all of the message. Raises `UnsupportedVersionError` if the
        broker has only lower ones.
        """
        nodes = list(self._view.nodes.values())
        start = int(self.clock.random() * len(nodes)) if nodes else 0
        candidates = nodes[start:] + nodes[:start]
        candidates.sort(key=lambda node: not self._connections.is_open(node.node_id))
        candidates += [Node(-1 - index, host, port) for index, (host, port) in enumerate(self._bootstrap)]
        failure: ProtocolError = NetworkError("there is no broker to ask")
        for node in candidates:
            try:
                channel = await self._connections.get(node, "")
                version = common_version(channel, expected.API_KEY, (at_least, ANY_VERSION[1]))
                started_ms = self.clock.monotonic_ms()
                response = await channel.ask(expected, version, message)
            except (NetworkError, RequestTimedOutError) as error:
                failure = error
            else:
                self.metrics.answered(expected.API_KEY, started_ms)
                return response
        raise failure

    async def ask_controller(self, expected: type[Response], message: Message, *, at_least: int = 0) -> Response:
        """Send a request to the controller. Raises `NotControllerError` if none is known. Does not retry.

        `at_least` is that of `ask_any`.
        """
        controller = self._view.controller_id
        if controller not in self._view.nodes:
            self.request_refresh()
            raise NotControllerError("no controller is known")
        return await self.ask(controller, expected, message, versions=(at_least, ANY_VERSION[1]))

    async def ask_coordinator(
        self,
        key: str,
        expected: type[Response],
        message: Message,
        *,
        kind: Coordinated = Coordinated.GROUP,
        timeout_ms: float | None = None,
        versions: tuple[int, int] = ANY_VERSION,
    ) -> Response:
        """Send a request to the coordinator of a group or a transactional id. Looks the coordinator up if it is
        unknown. Does not retry. The other arguments and the errors are those of `ask`.
        """
        node_id = await self.coordinator(key, kind)
        purpose = f"{kind} {key}"
        try:
            return await self.ask(node_id, expected, message, purpose=purpose, timeout_ms=timeout_ms, versions=versions)
        except (NetworkError, RequestTimedOutError):
            self.forget_coordinator(key, kind)
            raise

    async def check_coordinator(self, key: str, expected: type[Response], *, kind: Coordinated) -> None:
        """Raise `UnsupportedVersionError` if the coordinator of a group or a transactional id does not have the API.
        Does not send the request, and does not retry.
        """
        node_id = await self.coordinator(key, kind)
        try:
            channel = await self.connection(node_id, f"{kind} {key}")
        except (NetworkError, RequestTimedOutError):
            self.forget_coordinator(key, kind)
            raise
        common_version(channel, expected.API_KEY, ANY_VERSION)

    async def coordinator(self, key: str, kind: Coordinated = Coordinated.GROUP) -> int:
        """Return the node id of the coordinator of a group or a transactional id. Raises a retriable error while there
        is none.
        """
        known = self._coordinators.get((kind, key))
        if known is not None:
            return known
        message = {"key": key, "key_type": int(kind), "coordinator_keys": [key]}
        at_least = _FIND_BY_TYPE if kind is not Coordinated.GROUP else 0
        response = await self.ask_any(FindCoordinatorResponse, message, at_least=at_least)
        found = response.coordinators[0] if response.coordinators else response
        if found.error_code:
            raise error_for(found.error_code, f"{kind} {key} has no coordinator")
        if found.node_id not in self._view.nodes:
            self.request_refresh()
            raise CoordinatorNotAvailableError(
                f"broker {found.node_id}, the coordinator of {kind} {key}, is not in the metadata yet"
            )
        self._coordinators[kind, key] = found.node_id
        return found.node_id

    def forget_coordinator(self, key: str, kind: Coordinated = Coordinated.GROUP) -> None:
        """Forget a coordinator that moved or does not answer."""
        self._coordinators.pop((kind, key), None)

    # ------------------------------------------------------------------------------------------------ retries

    async def retrying(self, attempt: Callable[[], Awaitable[T]], deadline: Deadline) -> T:
        """Call `attempt` until it succeeds or raises a final error. After the deadline, raise the last error."""
        failures = 0
        with self.calls:
            while True:
                try:
                    return await attempt()
                except ProtocolError as error:
                    if self.calls.aborted:
                        raise RequestTimedOutError("the client was closed before the call ended") from error
                    failures += 1
                    pause_ms = self.backoff.delay_ms(failures, self.clock.random())
                    if not error.retriable or self._closed or pause_ms >= deadline.left_ms():
                        raise
                    self.request_refresh()
                await self.clock.sleep_ms(pause_ms)


def _settled(topic: TopicView | None) -> bool:
    """Whether a topic can be used, or has a final error."""
    if topic is None:
        return False
    cls = BY_CODE.get(topic.error_code)
    return bool(topic.partitions) or (topic.error_code != NONE and (cls is None or not cls.retriable))


def common_version(channel: Link, api_key: ApiKey, versions: tuple[int, int]) -> int:
    """Return the version to use on a connection. Raises `UnsupportedVersionError` if the broker is too old."""
    lowest, highest = versions
    version = min(channel.pick(api_key), highest)
    if version < lowest:
        raise UnsupportedVersionError(f"the broker is too old: {API_TABLE[api_key].name} needs version {lowest}")
    return version
