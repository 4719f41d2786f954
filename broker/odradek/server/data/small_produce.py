"""Handles small Produce requests, several at a time: those of one connection that have arrived together.

`network/small_requests` passes the bytes. Producers that send record by record, and many connections, make requests
with one record each: for these, the objects and calls of the usual path cost more than the work itself. This path has
no object for a request but its decoded form, writes the batches of a log with one system call, and encodes all
responses into one buffer.

Everything unusual is left to `server/data/produce_and_fetch`: other versions, transactional and idempotent producers,
compression, topics that the client is not yet known to be allowed to write, clients with quotas, and the requests that
are timed for the metrics. Invariant: requests are answered and counted as there, byte for byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter

from odradek.base.types import TopicPartition
from odradek.metrics.request_stats import RequestStats
from odradek.metrics.topic_stats import BrokerTopicStats
from odradek.network.small_requests import SmallClient
from odradek.protocol.hotpath_small_produce import (
    SmallProduce,
    decode_small_produce,
    encode_small_answer,
    has_frame,
    is_produce,
)
from odradek.records.checks.plain_batch import PlainBatch, plain_batch
from odradek.replication.leader.plain_appends import PlainTarget
from odradek.replication.replica_manager import ReplicaManager
from odradek.replication.replica_requests import AppendResult
from odradek.server.authorization.authorizer import Authorizer
from odradek.server.authorization.topic_rights import known_writable
from odradek.server.data.produce_and_fetch import count_append, encode_produced
from odradek.server.throttling.client_throttle import ClientThrottle

if TYPE_CHECKING:
    from mypy_extensions import i64

_MOST_TOPICS: Final = 1_000
"""Maximum number of topics whose names are remembered."""


class _Topic:
    """A topic by the bytes of its name."""

    __slots__ = ("name", "partitions")

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.partitions: Final[dict[int, TopicPartition]] = {}


class _Staged:
    """A request whose batches were staged, and the target of each of its entries."""

    __slots__ = ("request", "targets")

    def __init__(self, request: SmallProduce, targets: list[PlainTarget]) -> None:
        self.request: Final = request
        self.targets: Final = targets


class SmallProduceHandler:
    """The `SmallAnswers` of all connections."""

    def __init__(
        self,
        *,
        replicas: ReplicaManager,
        topic_stats: BrokerTopicStats,
        request_stats: RequestStats,
        authorizer: Authorizer | None = None,
        throttle: ClientThrottle | None = None,
    ) -> None:
        """Without an `authorizer`, everyone may write everything; without `throttle`, clients have no quotas."""
        self._online: Final = replicas.table.online
        self._appends: Final = replicas.plain
        self._topic_stats: Final = topic_stats
        self._request_stats: Final = request_stats
        self._times: Final = request_stats.times_of("Produce")
        self._authorizer: Final = authorizer
        self._throttle: Final = throttle
        self._topics: Final[dict[bytes, _Topic]] = {}

    def answer(self, connection: SmallClient, data: bytes) -> tuple[int, int, bytes] | None:
        """See `SmallAnswers`."""
        if self._throttle is not None and self._throttle.limits_clients:
            return None
        writable: frozenset[str] | None = None
        if self._authorizer is not None:
            writable = known_writable(self._authorizer, connection)
            if not writable:
                return 0, 0, b""
        staged: list[_Staged] = []
        position: i64 = 0
        left: int = self._times.countdown - 1
        version: i64 = -1
        try:
            while left > 0 and has_frame(data, position) and is_produce(data, position):
                request = decode_small_produce(data, position)
                if request is None or (version != request.version and staged):
                    break
                targets = self._stage(data, request, writable)
                if targets is None:
                    break
                version, position = request.version, request.end
                staged.append(_Staged(request, targets))
                left -= 1
        finally:
            is_complete = self._appends.flush()
        if not staged:
            return None if left > 0 else (0, 0, b"")
        number = len(staged)
        self._times.countdown -= number
        self._request_stats.answered("Produce", version, number)
        return position, number, self._responses(staged) if is_complete else self._mixed_responses(staged)

    def _stage(self, data: bytes, request: SmallProduce, writable: frozenset[str] | None) -> list[PlainTarget] | None:
        """Stage the batches of a request. None, with nothing staged, if it has to be handled alone."""
        targets: list[PlainTarget] = []
        batches: list[PlainBatch] = []
        for topic in request.topics:
            known = self._topics.get(topic.name)
            if known is None:
                known = self._new_topic(topic.name)
                if known is None:
                    return None
            if writable is not None and known.name not in writable:
                return None
            for entry in topic.entries:
                topic_partition = self._partition(known, entry.partition)
                target = self._appends.target(topic_partition, request.acks, len(data))
                batch = None if target is None else plain_batch(data, entry.start, entry.end)
                if target is None or batch is None or not target.group.reserve(batch):
                    return None
                targets.append(target)
                batches.append(batch)
        place: i64 = 0
        for topic in request.topics:
            for entry in topic.entries:
                target, batch = targets[place], batches[place]
                target.group.add(data, batch)
                entry.base_offset, entry.record_count = batch.offset, batch.count
                entry.log_start_offset = target.log_start_offset
                place += 1
        return targets

    def _partition(self, topic: _Topic, number: int) -> TopicPartition:
        known = topic.partitions.get(number)
        if known is None:
            known = TopicPartition(topic.name, number)
            if known in self._online:
                topic.partitions[number] = known
        return known

    def _new_topic(self, name: bytes) -> _Topic | None:
        try:
            topic = _Topic(str(name, "utf-8"))
        except UnicodeDecodeError:
            return None  # The usual path refuses the request.
        if len(self._topics) >= _MOST_TOPICS:
            self._topics.clear()
        self._topics[name] = topic
        return topic

    def _responses(self, staged: Sequence[_Staged]) -> bytes:
        """Count requests that succeeded. Returns their responses."""
        writer = BytesWriter()
        for each in staged:
            request = each.request
            place: i64 = 0
            for topic in request.topics:
                stats = self._topic_stats.of(each.targets[place].topic)
                place += len(topic.entries)
                for entry in topic.entries:
                    stats.total_produce += 1
                    stats.messages_in += entry.record_count
                    stats.bytes_in += entry.end - entry.start
            encode_small_answer(writer, request)
        return writer.getvalue()

    def _mixed_responses(self, staged: Sequence[_Staged]) -> bytes:
        """Count requests of which some entries failed. Returns their responses."""
        frames: list[bytes] = []
        for each in staged:
            request = each.request
            entries = [entry for topic in request.topics for entry in topic.entries]
            results: list[AppendResult] = []
            for entry, target in zip(entries, each.targets, strict=True):
                topic_partition, error = target.partition.topic_partition, target.error
                if error is None:
                    last_offset = entry.base_offset + entry.record_count - 1
                    result = AppendResult(
                        topic_partition,
                        first_offset=entry.base_offset,
                        last_offset=last_offset,
                        log_start_offset=entry.log_start_offset,
                        record_count=entry.record_count,
                        size_bytes=entry.end - entry.start,
                    )
                else:
                    self._request_stats.failed("Produce", error.code)
                    result = AppendResult(
                        topic_partition,
                        error.code,
                        log_start_offset=entry.log_start_offset,
                        error_message=str(error),
                        size_bytes=entry.end - entry.start,
                    )
                count_append(self._topic_stats, result)
                results.append(result)
            frames.append(encode_produced(request.version, request.correlation_id, results, 0))
        return b"".join(frames)
