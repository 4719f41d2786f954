"""The client library for threads: for Spark workers, the command line and scripts.

Invariants: all work runs on the event loop of `loop_thread`; after a fork, the child opens its own connections.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack

from odradek.base.errors import NetworkError
from odradek.base.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NO_OFFSET, TopicPartition
from odradek.client.blocking import loop_thread
from odradek.client.blocking.loop_thread import LoopThread
from odradek.client.cluster_client import Cluster
from odradek.client.consumer.raw_fetch import Range, RawFetcher
from odradek.client.metadata import described_topic
from odradek.client.models import ListedOffset, OffsetAndTimestamp, RawFetch, TopicDescription
from odradek.client.offsets import list_offsets
from odradek.client.settings import CLIENT_SETTINGS, ClientSettings, as_settings

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.client.blocking.blocking_admin import BlockingAdmin
    from odradek.client.blocking.blocking_consumer import BlockingConsumer
    from odradek.client.blocking.blocking_producer import BlockingProducer
    from odradek.client.keywords import ClientKeywords, ConsumerKeywords, ProducerKeywords

T = TypeVar("T")

DEFAULT_FETCH_BYTES: Final = 4 << 20
"""Large enough that the cost of a request is negligible, small enough to decode while the next one is fetched."""


class _Open:
    """The connections of a client in one process.

    Admin clients, producers and consumers are imported when they are first used. Workers of Spark only fetch, the
    processes that plan its queries only look up topics and offsets, and each would wait for the imports.
    """

    def __init__(self, loop: LoopThread, cluster: Cluster) -> None:
        self.loop: Final = loop
        self.cluster: Final = cluster
        self.raw: Final = RawFetcher(cluster)

    @cached_property
    def admin(self) -> Admin:
        from odradek.client.admin import Admin

        return Admin(self.cluster.settings, cluster=self.cluster)

    async def close(self) -> None:
        try:
            await self.raw.close()
        finally:
            await self.cluster.close()


class BlockingClient:
    """Lookups and fetches without an event loop. Creates blocking producers, consumers and admin clients.

    Any thread can use it, and so can a forked child. It connects on first use. `close` is idempotent; afterwards every
    method raises `NetworkError`. All errors are `OdradekError`.
    """

    def __init__(self, settings: ClientSettings | str | None = None, **keywords: Unpack[ClientKeywords]) -> None:
        """`settings` can be a bootstrap list, `host:port,host:port`. `keywords` are single settings of
        `ClientSettings` and override `settings`.

        Raises `ConfigError` for an invalid value, and `TypeError` for an unknown keyword.
        """
        self.settings: Final = as_settings(settings, **keywords)
        self._lock = threading.Lock()
        self._state: _Open | None = None
        self._process_id = os.getpid()
        self._closed = False

    @classmethod
    def shared(cls, settings: ClientSettings | str) -> BlockingClient:
        """Return the client that this process shares for these settings. It need not be closed."""
        settings = as_settings(settings)
        with _shared_lock:
            client = _shared.get(settings)
            if client is None or client._closed:
                client = _shared[settings] = cls(settings)
            return client

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Call `close`."""
        self.close()

    def _open(self) -> _Open:
        if self._process_id != os.getpid():
            # In a forked child, connections and possibly the lock belong to the parent.
            loop_thread.abandon((self._state, self._lock))
            self._lock = threading.Lock()
            self._state = None
            self._process_id = os.getpid()
        with self._lock:
            if self._closed:
                raise NetworkError("the client is closed")
            if self._state is None:
                loop = loop_thread.current()
                cluster = loop.call(lambda: Cluster(self.settings))
                loop.run(cluster.start())
                self._state = loop.call(lambda: _Open(loop, cluster))
            return self._state

    def _run(self, work: Callable[[_Open], Coroutine[Any, Any, T]]) -> T:
        state = self._open()
        return state.loop.run(work(state))

    def close(self) -> None:
        """Close the connections of this client. Its producers and consumers must be closed separately."""
        if self._process_id != os.getpid():
            self._closed = True
            return
        with self._lock:
            self._closed = True
            state, self._state = self._state, None
        if state is not None:
            state.loop.run(state.close())

    def disconnect(self) -> None:
        """Close the connections. The next call opens them again. Calls that are running raise `NetworkError`."""
        if self._process_id != os.getpid():
            return
        with self._lock:
            state, self._state = self._state, None
        if state is not None:
            state.loop.run(state.close())

    # Other clients

    @property
    def admin(self) -> BlockingAdmin:
        """An admin client over the connections of this client."""
        state = self._open()
        from odradek.client.blocking.blocking_admin import BlockingAdmin

        return BlockingAdmin.of(state.loop, state.admin)

    def producer(self, **keywords: Unpack[ProducerKeywords]) -> BlockingProducer:
        """Return a started producer, which the caller must close. The arguments are those of `Producer`.

        Raises `NetworkError` if no broker answers.
        """
        from odradek.client.blocking.blocking_producer import BlockingProducer
        from odradek.client.producer.producer import Producer

        loop = self._open().loop
        return BlockingProducer.of(loop, loop.start(lambda: Producer(self.settings, **keywords)))

    def consumer(self, *topics: str, **keywords: Unpack[ConsumerKeywords]) -> BlockingConsumer:
        """Return a started consumer, which the caller must close. The arguments are those of `Consumer`.

        Raises `NetworkError` if no broker answers.
        """
        from odradek.client.blocking.blocking_consumer import BlockingConsumer
        from odradek.client.consumer.consumer import Consumer

        loop = self._open().loop
        return BlockingConsumer.of(loop, loop.start(lambda: Consumer(self.settings, *topics, **keywords)))

    # Lookups

    def topics(self, *, internal: bool = False) -> list[str]:
        """Return the names of all topics, sorted. Internal topics, such as `__consumer_offsets`, only with
        `internal`.
        """
        return self._run(lambda state: state.admin.list_topics(internal=internal))

    def partitions(self, topic: str) -> list[int]:
        """Return the partition numbers of a topic, in order. Raises `UnknownTopicOrPartitionError`."""

        async def work(state: _Open) -> list[int]:
            view = await state.cluster.fresh_view([topic])
            return [each.partition for each in described_topic(topic, view.topics.get(topic)).partitions]

        return self._run(work)

    def describe_topics(self, topics: Iterable[str] | None = None) -> dict[str, TopicDescription]:
        """Return topics with their ids and partitions, by name, with one request. By default, all topics that clients
        may see, except internal ones.

        Raises `UnknownTopicOrPartitionError` if one of `topics` does not exist.
        """
        names = None if topics is None else sorted(set(topics))

        async def work(state: _Open) -> dict[str, TopicDescription]:
            view = await state.cluster.fresh_view(names)
            if names is not None:
                return {name: described_topic(name, view.topics.get(name)) for name in names}
            # A topic without partitions is being created or deleted, or may not be described.
            found = (topic for topic in view.topics.values() if topic.partitions and not topic.internal)
            return {topic.name: described_topic(topic.name, topic) for topic in found}

        return self._run(work)

    def earliest_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        found = self._list_offsets(dict.fromkeys(partitions, EARLIEST_TIMESTAMP), None)
        return {partition: listed.offset for partition, listed in found.items()}

    def latest_offsets(
        self, partitions: Iterable[TopicPartition], *, isolation: str | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition.

        This is the high watermark, or with `read_committed` the last stable offset. `isolation` overrides the setting
        `isolation_level`.
        """
        found = self._list_offsets(dict.fromkeys(partitions, LATEST_TIMESTAMP), isolation)
        return {partition: listed.offset for partition, listed in found.items()}

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], *, isolation: str | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return offset and timestamp of the first record of each partition at or after a time; None without one.

        Times are milliseconds since 1970 UTC. `isolation` overrides the setting `isolation_level`.
        """
        return {
            partition: None if listed.offset == NO_OFFSET else OffsetAndTimestamp(*listed)
            for partition, listed in self._list_offsets(timestamps, isolation).items()
        }

    def _list_offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: str | None
    ) -> dict[TopicPartition, ListedOffset]:
        read_committed = self._read_committed(isolation)
        return self._run(
            lambda state: list_offsets(
                state.cluster,
                wanted,
                read_committed=read_committed,
                deadline=state.cluster.deadline("listing offsets"),
            )
        )

    def _read_committed(self, isolation: str | None) -> bool:
        if isolation is None:
            return self.settings.read_committed
        CLIENT_SETTINGS["isolation.level"].parse(isolation)
        return isolation == "read_committed"

    # Records

    def fetch_raw(
        self,
        topic_partition: TopicPartition,
        offset: int,
        *,
        max_bytes: int = DEFAULT_FETCH_BYTES,
        max_wait_ms: int | None = None,
        isolation: str | None = None,
        read_ahead: bool = True,
        end_offset: int | None = None,
    ) -> RawFetch:
        """Return whole batches from `offset` on, as the leader stores them.

        Returns about `max_bytes`, but at least one batch. The result is empty if no data arrives within `max_wait_ms`
        milliseconds, by default `fetch_max_wait_ms`. `isolation` overrides the setting `isolation_level`.

        With `read_ahead`, the client fetches the next range while the caller processes this one. A call with
        `next_offset` and the same `max_bytes` returns it; otherwise it is freed after ten seconds. The caller needs no
        record from `end_offset` on, so the fetch is not larger than the records before it probably are. Raises
        `OffsetOutOfRangeError`, `UnknownTopicOrPartitionError` and other errors that persist for
        `default_api_timeout_ms`.
        """
        wanted = Range(
            topic_partition=topic_partition,
            offset=offset,
            max_bytes=max_bytes,
            max_wait_ms=self.settings.fetch_max_wait_ms if max_wait_ms is None else max_wait_ms,
            min_bytes=self.settings.fetch_min_bytes,
            read_committed=self._read_committed(isolation),
            end_offset=end_offset,
        )
        return self._run(lambda state: state.raw.fetch(wanted, read_ahead=read_ahead))

    def drop_read_ahead(self, topic_partition: TopicPartition) -> None:
        """Free what `fetch_raw` has fetched ahead of a partition that is not read further. Does not connect."""
        if self._process_id != os.getpid():
            return
        with self._lock:
            state = self._state
        if state is not None:
            state.loop.call(lambda: state.raw.drop_read_ahead(topic_partition))


_shared: dict[ClientSettings, BlockingClient] = {}
_shared_lock = threading.Lock()


def _after_fork() -> None:
    global _shared_lock
    _shared_lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
