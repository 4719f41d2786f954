"""Produce and Fetch requests on a connection, in the newest version that both sides support.

They use the codecs of the data path, which create no message objects. `sender`, `fetcher` and `raw_fetch` use them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from odradek.base.errors import NONE, NetworkError
from odradek.base.ports import Buffer
from odradek.base.types import NO_OFFSET, NO_TIMESTAMP, ZERO_UUID
from odradek.client.cluster_client import ANY_VERSION, Cluster, common_version
from odradek.client.producer.accumulator import ProducerBatch
from odradek.client.producer.sequences import Numbers
from odradek.client.settings import NO_ACKS
from odradek.protocol.apis import ApiKey
from odradek.protocol.hotpath import (
    FetchRequest,
    FetchResponse,
    ProducedPartition,
    ProduceRequest,
    decode_fetch_response,
    decode_produce_response,
    encode_fetch_request,
    encode_produce_request,
)

_LAST_FETCH_BY_NAME: Final = 12
"""First Fetch version with topic ids (KIP-516)."""


class PreparedBatch(NamedTuple):
    """A batch to send, with the numbers in the header of `data`. The batch can get other numbers while it is in
    flight.
    """

    batch: ProducerBatch
    numbers: Numbers
    data: Buffer


class BatchAnswer(NamedTuple):
    """The broker's response for a batch. `base_offset` is -1 if unknown."""

    error_code: int = NONE
    base_offset: int = NO_OFFSET
    timestamp: int = NO_TIMESTAMP
    message: str | None = None


async def exchange_produce(
    cluster: Cluster, node_id: int, prepared: list[PreparedBatch], versions: tuple[int, int] = ANY_VERSION
) -> list[BatchAnswer]:
    """Send batches to their leader, at most one for each partition. Return a response for each, in order.

    `versions`: the lowest and the highest version of Produce that may be used. Raises `UnsupportedVersionError` if the
    broker has only lower ones, and `NetworkError` or `RequestTimedOutError`; the result is then unknown. With acks=0,
    success means that the request was sent.
    """
    settings = cluster.settings
    channel = await cluster.connection(node_id, "produce")
    version = common_version(channel, ApiKey.PRODUCE, versions)
    request = ProduceRequest(
        transactional_id=settings.transactional_id,
        acks=settings.required_acks,
        timeout_ms=settings.request_timeout_ms,
        entries=[
            (item.batch.topic_partition, memoryview(item.data))
            for item in sorted(prepared, key=lambda item: item.batch.topic_partition)
        ],
    )

    def encode(correlation_id: int) -> Sequence[Buffer]:
        return encode_produce_request(version, correlation_id, settings.client_id, request)

    expected = settings.required_acks != NO_ACKS
    started_ms = cluster.clock.monotonic_ms()
    cluster.metrics.sent((item.batch.record_count, len(item.data), item.batch.created_ms) for item in prepared)
    frame = await channel.call(encode, timeout_ms=settings.request_timeout_ms, expect_response=expected)
    cluster.metrics.answered(ApiKey.PRODUCE, started_ms)
    if not expected:
        return [BatchAnswer() for _ in prepared]
    found = {row.topic_partition: row for row in decode_produce_response(version, frame).partitions}
    return [_answer(found.get(item.batch.topic_partition)) for item in prepared]


def _answer(row: ProducedPartition | None) -> BatchAnswer:
    if row is None:
        # Treat it like a lost connection: the batch may have been written or not.
        return BatchAnswer(NetworkError.code, message="the response lacks the partition")
    return BatchAnswer(row.error_code, row.base_offset, row.log_append_time_ms, row.error_message)


async def exchange_fetch(
    cluster: Cluster, node_id: int, request: FetchRequest, *, purpose: str, timeout_ms: float | None = None
) -> FetchResponse:
    """Fetch from a broker. The response has topic names, and the caller owns the memory of the records.

    Uses topic ids if the broker supports them and every topic has one. Raises `NetworkError`, `RequestTimedOutError`.
    """
    client_id = cluster.settings.client_id
    channel = await cluster.connection(node_id, purpose)
    version = channel.pick(ApiKey.FETCH)
    ids = [row.topic_id for row in request.entries] + [row.topic_id for row in request.forgotten]
    if None in ids or ZERO_UUID in ids:
        version = min(version, _LAST_FETCH_BY_NAME)

    def encode(correlation_id: int) -> Sequence[Buffer]:
        return (encode_fetch_request(version, correlation_id, client_id, request),)

    if timeout_ms is None:
        timeout_ms = cluster.settings.request_timeout_ms + request.max_wait_ms
    started_ms = cluster.clock.monotonic_ms()
    frame = await channel.call(encode, timeout_ms=timeout_ms)
    cluster.metrics.answered(ApiKey.FETCH, started_ms)
    cluster.metrics.count("bytes-consumed", len(frame))
    cluster.metrics.measure("fetch-size", len(frame))
    response = decode_fetch_response(version, frame)
    if version > _LAST_FETCH_BY_NAME:
        # An incremental response may contain any topic of the session, so use the metadata and not the request.
        names = {topic.topic_id: topic.name for topic in cluster.view.topics.values()}
        response.partitions = [row._replace(topic=names.get(row.topic_id or ZERO_UUID)) for row in response.partitions]
    return response
