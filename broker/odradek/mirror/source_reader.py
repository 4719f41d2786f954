"""Reads the partitions of one source: whole batches, with one fetch session for each broker of the source.

`copier_group` adds and removes partitions, and `copy_rounds` takes what was fetched. Invariants: responses of a
partition are taken in order and without a gap, from the offset on that `add` got; at most about
`2 * fetch.max.bytes` are buffered; with `maxBytesPerSecond`, nothing is read while the budget is spent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from odradek.base.errors import AuthenticationError, OdradekError, ProtocolError
from odradek.base.ports import Clock
from odradek.base.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, ZERO_UUID, TopicPartition
from odradek.client.cluster_client import Cluster
from odradek.client.consumer.fetcher import Fetcher
from odradek.client.metadata import Backoff
from odradek.client.models import RawFetch
from odradek.client.offsets import list_offsets
from odradek.mirror.byte_budget import ByteBudget
from odradek.mirror.copy_positions import CopyPosition, recreated
from odradek.mirror.mirror_config import SourceConfig
from odradek.mirror.mirror_plan import CopiedPartition

_LOG: Final = logging.getLogger(__name__)

_POLL_MS: Final = 500.0
"""How often pauses and partitions that a topic lacks are looked at without news."""
_START_BACKOFF: Final = Backoff(1_000, 30_000)

DEFAULTS: Final[Mapping[str, object]] = {
    "fetch_max_bytes": 16 << 20,
    "max_partition_fetch_bytes": 4 << 20,
    "default_api_timeout_ms": 30_000,
}
"""Settings of the client unless `properties` sets them: fewer bytes in memory, and more for each partition."""


class Taken(NamedTuple):
    """What was fetched of a partition."""

    partition: CopiedPartition
    fetch: RawFetch


class ReadableRange(NamedTuple):
    """The offsets of a partition's log that can be read."""

    start: int
    end: int


class SourceReader:
    """The reader of one source. `run` connects, and lasts until it is cancelled."""

    def __init__(
        self, source: SourceConfig, group: str, *, clock: Clock, on_news: Callable[[], None], name: str
    ) -> None:
        """`group` is named in errors. `on_news` is called when there may be something to take, or when the source was
        reached for the first time. `name` is the client id.
        """
        self.config: Final = source
        self._group: Final = group
        self._clock: Final = clock
        self._on_news: Final = on_news
        self._client_id: Final = name
        self._cluster: Cluster | None = None
        self._fetcher: Fetcher | None = None
        self._partitions: dict[TopicPartition, CopiedPartition] = {}
        self._budget: Final = ByteBudget(source.max_bytes_per_second, clock.monotonic_ms())

    @property
    def is_connected(self) -> bool:
        """Whether the source has been reached."""
        return self._fetcher is not None

    @property
    def cluster_id(self) -> str:
        """Id of the source cluster; empty if it is unknown."""
        return "" if self._cluster is None else self._cluster.view.cluster_id or ""

    async def run(self) -> None:
        """Connect, with retries, then report news until cancelled."""
        cluster = await self._connected()
        try:
            fetcher = Fetcher(cluster)
            fetcher.start()
            self._cluster, self._fetcher = cluster, fetcher
            try:
                while True:
                    self._on_news()
                    await fetcher.wait(_POLL_MS)
                    self._apply_budget()
            finally:
                self._fetcher = None
                await fetcher.close()
        finally:
            self._cluster = None
            await cluster.close()

    async def _connected(self) -> Cluster:
        failures = 0
        while True:
            settings = self.config.address.settings()
            changes = {name: value for name, value in DEFAULTS.items() if not self._is_set(name)}
            cluster = Cluster(
                settings.replace(
                    **changes,
                    client_id=self._client_id,
                    isolation_level="read_committed",
                    auto_offset_reset="none",
                    group_id=None,
                    allow_auto_create_topics=False,
                ),
                clock=self._clock,
            )
            try:
                await cluster.start()
            except ProtocolError as error:
                failures += 1
                what = "refuses the login" if isinstance(error, AuthenticationError) else "cannot be reached"
                _LOG.warning("source %s %s, and is tried again: %s", self.config.name, what, error)
                await self._clock.sleep_ms(_START_BACKOFF.delay_ms(failures, self._clock.random()))
            else:
                _LOG.info("source %s is the cluster %s", self.config.name, cluster.view.cluster_id)
                return cluster

    def _is_set(self, attribute: str) -> bool:
        names = {name.lower().replace("_", ".").removeprefix("kafka.") for name in self.config.address.properties}
        return attribute.replace("_", ".") in names

    # Partitions

    async def ranges(self, partitions: Iterable[CopiedPartition]) -> dict[CopiedPartition, ReadableRange]:
        """Return the readable offsets of partitions. Raises `ProtocolError` if the source does not answer."""
        assert self._cluster is not None
        by_name = {TopicPartition(each.topic, each.partition): each for each in partitions}
        deadline = self._cluster.deadline(f"the offsets of source {self.config.name}")
        starts = await list_offsets(
            self._cluster, dict.fromkeys(by_name, EARLIEST_TIMESTAMP), read_committed=True, deadline=deadline
        )
        ends = await list_offsets(
            self._cluster, dict.fromkeys(by_name, LATEST_TIMESTAMP), read_committed=True, deadline=deadline
        )
        return {
            partition: ReadableRange(starts[name].offset, max(starts[name].offset, ends[name].offset))
            for name, partition in by_name.items()
        }

    def add(self, partition: CopiedPartition, position: CopyPosition) -> None:
        """Read a partition from a position on."""
        fetcher = self._fetcher
        assert fetcher is not None
        name = TopicPartition(partition.topic, partition.partition)
        self._partitions[name] = partition
        fetcher.assign(self._partitions)
        fetcher.states[name].seek(position.offset, position.leader_epoch)
        fetcher.wake()

    def remove(self, partitions: Iterable[CopiedPartition]) -> None:
        """Read these partitions no longer, and drop what was fetched of them."""
        for partition in partitions:
            self._partitions.pop(TopicPartition(partition.topic, partition.partition), None)
        if self._fetcher is not None:
            self._fetcher.assign(self._partitions)

    # Data

    def failures(self) -> list[tuple[CopiedPartition, OdradekError]]:
        """Return the partitions that cannot be read on, with the error of each."""
        found: list[tuple[CopiedPartition, OdradekError]] = []
        if self._fetcher is None or self._cluster is None:
            return found
        topics = self._cluster.view.topics
        for name, state in self._fetcher.states.items():
            partition = self._partitions[name]
            view = topics.get(name.topic)
            if (
                view is not None
                and ZERO_UUID not in (view.topic_id, partition.topic_id)
                and (view.topic_id != partition.topic_id)
            ):
                found.append((partition, recreated(partition, self._group)))
            elif state.error is not None and not state.has_data:
                found.append((partition, state.error))
        return found

    def take(self, limit_bytes: int, wanted: Callable[[CopiedPartition], bool]) -> list[Taken]:
        """Return one response of each wanted partition that has one, up to about `limit_bytes` in total.

        The next call begins with other partitions. `failures` must be called first, so that nothing of a topic that was
        created again is taken.
        """
        taken: list[Taken] = []
        if self._fetcher is None:
            return taken
        states = self._fetcher.states
        left = limit_bytes
        for name, state in list(states.items()):
            partition = self._partitions[name]
            if left <= 0 or not wanted(partition):
                continue
            fetch = state.take_fetch() if state.has_data else None
            if fetch is not None:
                states[name] = states.pop(name)
                taken.append(Taken(partition, fetch))
                left -= len(fetch.records)
                self._budget.spend(len(fetch.records), self._clock.monotonic_ms())
        if taken:
            self._apply_budget()
            self._fetcher.wake()
        return taken

    @property
    def waiting_bytes(self) -> int:
        """Size of what can be taken."""
        if self._fetcher is None:
            return 0
        return sum(state.buffered_bytes for state in self._fetcher.states.values() if state.has_data)

    @property
    def has_news(self) -> bool:
        """Whether something can be taken, or a partition has failed."""
        return self._fetcher is not None and (
            any(state.has_data for state in self._fetcher.states.values()) or bool(self.failures())
        )

    def lag(self, partition: CopiedPartition) -> int | None:
        """Return how many offsets were not taken yet; None if that is unknown."""
        if self._fetcher is None:
            return None
        state = self._fetcher.states.get(TopicPartition(partition.topic, partition.partition))
        return None if state is None else state.lag(read_committed=True)

    def _apply_budget(self) -> None:
        fetcher = self._fetcher
        if fetcher is None or self.config.max_bytes_per_second is None:
            return
        is_spent = self._budget.pause_ms(self._clock.monotonic_ms()) > 0
        changed = False
        for state in fetcher.states.values():
            changed = changed or state.paused != is_spent
            state.paused = is_spent
        if changed and not is_spent:
            fetcher.wake()
