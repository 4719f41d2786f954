"""The registration and rebalancing algorithms of the documents, for one consumer of a group.

Each consumer decides for itself, whenever the members, the brokers or the topics change. It releases what it loses,
then claims what it gains, and tries again while the earlier owner has not released a partition. Invariants:

1. A partition is fetched only while its owner znode names a thread of this consumer, and belongs to its session. If the
   connection is lost, all fetches stop before the session can expire.
2. A partition is released after its fetches have stopped.
3. A claim that fails for one partition leaves none of the new ones claimed.

Partitions that a consumer keeps are fetched without interruption. (Kafka's consumers release and claim all of them.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from odradek.base.errors import ConfigError, OdradekError
from odradek.base.ports import Clock, Timer
from odradek.base.tasks import TaskOwner
from odradek.base.types import TopicPartition
from odradek.classic.assignment import ConsumerThread, assign_range, assign_round_robin, assigned_to, threads_of
from odradek.classic.consumer_znodes import BLACKLIST, STATIC, ConsumerRegistration
from odradek.classic.group_registry import GroupRegistry
from odradek.classic.topic_filters import TopicFilter
from odradek.zk import layout
from odradek.zk.port import SessionEvent, SessionState, Watch, ZkClient

log = logging.getLogger(__name__)

Owned = Mapping[TopicPartition, ConsumerThread]


class ConsumerRebalanceFailedError(OdradekError):
    """A consumer could not claim its partitions within `rebalance.max.retries` attempts."""


class Fetching(Protocol):
    """What the connector does with the partitions of a consumer."""

    async def stop(self, partitions: frozenset[TopicPartition], *, is_lost: bool) -> None:
        """Stop fetches of partitions and drop records that no stream has returned yet.

        With `auto.commit.enable`, the offsets are stored, unless `is_lost`: another consumer may own them already.
        """
        ...

    async def start(self, owned: Owned) -> None:
        """Start to fetch partitions, each for the stream of its thread."""
        ...


class RebalanceSettings(Protocol):
    """The settings of the algorithm."""

    @property
    def rebalance_max_retries(self) -> int:
        """Attempts of one rebalance."""
        ...

    @property
    def rebalance_backoff_ms(self) -> int:
        """Wait between two attempts."""
        ...

    @property
    def partition_assignment_strategy(self) -> str:
        """`range` or `roundrobin`."""
        ...

    @property
    def exclude_internal_topics(self) -> bool:
        """Whether filters omit internal topics."""
        ...


class ConsumerRebalancer:
    """Registers a consumer, and keeps its partitions in step with the group until it is closed."""

    def __init__(
        self,
        zk: ZkClient,
        registry: GroupRegistry,
        registration: ConsumerRegistration,
        fetching: Fetching,
        settings: RebalanceSettings,
        *,
        clock: Clock,
        session_timeout_ms: int,
        on_failure: Callable[[OdradekError], None],
    ) -> None:
        """`on_failure` is called once if a rebalance fails for good; the consumer has no partitions then."""
        self._zk: Final = zk
        self._registry: Final = registry
        self._registration: Final = registration
        self._fetching: Final = fetching
        self._settings: Final = settings
        self._clock: Final = clock
        self._on_failure: Final = on_failure
        self._tasks: Final = TaskOwner(lambda name, error: on_failure(OdradekError(f"{name} failed: {error!r}")))
        self._wake: Final = asyncio.Event()
        self._watches: list[Watch] = []
        self._topic_watches: dict[str, Watch] = {}
        self._session_id = 0
        self._owned: dict[TopicPartition, ConsumerThread] = {}
        self._claimed: set[TopicPartition] = set()
        """Partitions whose owner znode may be ours. After a lost connection, it has more than `_owned`."""
        self._connected: Final = asyncio.Event()
        self._session_timeout_ms: Final = session_timeout_ms
        self._expiry: Timer | None = None
        self._may_be_expired = False
        self._closed = False

    @property
    def owned(self) -> Owned:
        """The partitions that are being fetched, with their threads."""
        return dict(self._owned)

    async def start(self) -> None:
        """Register, watch for changes, and claim the first partitions. Raises `ConsumerRebalanceFailedError`."""
        self._zk.on_session(self._session_changed)
        if self._zk.state is SessionState.CONNECTED:
            self._connected.set()
        paths = [self._registry.members_path, layout.BROKER_IDS]
        if self._registration.pattern != STATIC:
            paths.append(layout.TOPICS)
        self._watches = [self._zk.watch_children(path, self._wake.set) for path in paths]
        await self._rebalance()
        self._tasks.spawn(self._follow(), name="rebalances of a classic consumer")

    async def close(self) -> None:
        """Stop all fetches, give up all partitions, and leave the group. Idempotent."""
        if self._closed:
            return
        self._closed = True
        for watch in [*self._watches, *self._topic_watches.values()]:
            watch.cancel()
        if self._expiry is not None:
            self._expiry.cancel()
        await self._tasks.close()
        await self._stop(frozenset(self._owned), is_lost=self._zk.session_id != self._session_id)
        await self._registry.release(self._claimed)
        await self._registry.deregister()

    def _session_changed(self, event: SessionEvent) -> None:
        if self._closed:
            return
        if event in (SessionEvent.ESTABLISHED, SessionEvent.RESUMED):
            if self._expiry is not None:
                self._expiry.cancel()
            self._may_be_expired = False
            self._connected.set()
            self._wake.set()
            return
        self._connected.clear()
        if event is SessionEvent.SUSPENDED:
            # The last response of the server arrived at most two thirds of the timeout ago.
            self._expiry = self._clock.call_later(self._session_timeout_ms / 3, self._expect_expiry)
        else:
            self._expect_expiry()

    def _expect_expiry(self) -> None:
        """Stop all fetches: other consumers can own the partitions from now on."""
        self._may_be_expired = True
        self._tasks.spawn(self._stop(frozenset(self._owned), is_lost=True), name="stop of a classic consumer")

    async def _follow(self) -> None:
        while True:
            await self._wake.wait()
            try:
                await self._rebalance()
            except OdradekError as error:
                await self._stop(frozenset(self._owned), is_lost=False)
                self._on_failure(error)
                return

    async def _rebalance(self) -> None:
        reason = "another consumer still owns one"
        for attempt in range(self._settings.rebalance_max_retries):
            if attempt:
                await self._clock.sleep_ms(self._settings.rebalance_backoff_ms)
            await self._connected.wait()
            # A change during the attempt causes the next rebalance.
            self._wake.clear()
            try:
                if self._zk.session_id != self._session_id:
                    await self._register()
                if await self._reach(await self._wanted()):
                    return
            except OdradekError as error:
                reason = str(error)
                log.warning("consumer %s: a rebalance failed: %s", self._registry.consumer_id, error)
        raise ConsumerRebalanceFailedError(
            f"consumer {self._registry.consumer_id} could not claim its partitions in rebalance.max.retries="
            f"{self._settings.rebalance_max_retries} attempts: {reason}"
        )

    async def _register(self) -> None:
        """Begin again in a new session, to which nothing belongs yet."""
        session_id = self._zk.session_id
        await self._stop(frozenset(self._owned), is_lost=True)
        self._claimed.clear()
        await self._registry.register(self._registration)
        self._session_id = session_id

    async def _wanted(self) -> dict[TopicPartition, ConsumerThread]:
        """Return the partitions that the algorithm assigns to this consumer now."""
        members = await self._registry.members()
        topics = await self._registry.topics() if any(each.pattern != STATIC for each in members.values()) else []
        threads: dict[str, list[ConsumerThread]] = {}
        mine: set[str] = set()
        for member, registration in members.items():
            for topic, streams in self._subscribed(member, registration, topics).items():
                threads.setdefault(topic, []).extend(threads_of(member, streams))
                if member == self._registry.consumer_id:
                    mine.add(topic)
        self._watch_topics(mine)
        if self._settings.partition_assignment_strategy == "roundrobin":
            partitions = await self._registry.partitions(threads)
            return assigned_to(self._registry.consumer_id, assign_round_robin(partitions, threads))
        partitions = await self._registry.partitions(mine)
        owners = assign_range(partitions, {topic: threads[topic] for topic in mine})
        return assigned_to(self._registry.consumer_id, owners)

    def _subscribed(self, member: str, registration: ConsumerRegistration, topics: list[str]) -> Mapping[str, int]:
        if registration.pattern == STATIC:
            return registration.subscription
        ((expression, streams),) = registration.subscription.items()
        try:
            chosen = TopicFilter(expression, is_blacklist=registration.pattern == BLACKLIST)
        except ConfigError as error:
            log.warning("member %s of the group reads nothing: %s", member, error)
            return {}
        exclude = self._settings.exclude_internal_topics
        return {topic: streams for topic in topics if chosen.allows(topic, exclude_internal_topics=exclude)}

    def _watch_topics(self, topics: set[str]) -> None:
        """Watch the topics that are read: partitions can be added to them."""
        for topic in self._topic_watches.keys() - topics:
            self._topic_watches.pop(topic).cancel()
        for topic in topics - self._topic_watches.keys():
            self._topic_watches[topic] = self._zk.watch_data(layout.topic_path(topic), self._wake.set)

    async def _reach(self, wanted: Owned) -> bool:
        """Release what is lost, then claim what is gained. Returns False if that is not possible yet."""
        await self._stop(
            frozenset(partition for partition, thread in self._owned.items() if wanted.get(partition) != thread),
            is_lost=False,
        )
        surplus = self._claimed - self._owned.keys()
        await self._registry.release(surplus)
        self._claimed -= surplus
        gained = {partition: thread for partition, thread in wanted.items() if partition not in self._owned}
        self._claimed |= gained.keys()
        if not await self._registry.claim(gained):
            self._claimed -= gained.keys()
            return False
        if self._may_be_expired:
            return False
        self._owned |= gained
        if gained:
            await self._start(gained)
        return True

    async def _start(self, gained: Owned) -> None:
        try:
            await self._fetching.start(gained)
        except OdradekError:
            # The next attempt starts them again.
            await self._stop(frozenset(gained), is_lost=True)
            raise

    async def _stop(self, partitions: frozenset[TopicPartition], *, is_lost: bool) -> None:
        if not partitions:
            return
        for partition in partitions:
            self._owned.pop(partition, None)
        await self._fetching.stop(partitions, is_lost=is_lost)
