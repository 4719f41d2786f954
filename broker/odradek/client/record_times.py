"""Timestamps of the first records that a group has not read, with few and small fetches (`records/first_record`)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from odradek.base.errors import OdradekError, OffsetOutOfRangeError
from odradek.base.types import EARLIEST_TIMESTAMP, NO_BROKER, NO_EPOCH, NO_TIMESTAMP, TopicPartition
from odradek.client.cluster_client import Cluster, Deadline
from odradek.client.exchanges import exchange_fetch
from odradek.client.offsets import list_offsets
from odradek.protocol.hotpath import FetchedPartition, FetchEntry, FetchRequest
from odradek.records.first_record import FIRST_LIMIT_BYTES, RecordSearch

logger = logging.getLogger(__name__)

PARTITIONS_PER_FETCH: Final = 64
FETCH_MAX_BYTES: Final = PARTITIONS_PER_FETCH * FIRST_LIMIT_BYTES


async def record_times(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, deadline: Deadline
) -> dict[TopicPartition, int | None]:
    """Return the timestamp of the first record at or after each offset, in milliseconds since 1970 UTC; None if only
    transaction markers follow.

    If the offset is below the log start offset, it is the first record of the log. The result lacks partitions whose
    record has no timestamp, that the user may not read, and whose leader does not answer. The metadata of the
    partitions must be known.
    """
    found: dict[TopicPartition, int | None] = {}
    by_leader: dict[int, dict[TopicPartition, RecordSearch]] = {}
    for partition, offset in wanted.items():
        leader = cluster.view.leader(partition)
        if leader != NO_BROKER:
            by_leader.setdefault(leader, {})[partition] = RecordSearch(offset)
    searches = (_Leader(cluster, node, searches, found, deadline).run() for node, searches in by_leader.items())
    await asyncio.gather(*searches)
    return found


class _Leader:
    """The searches at one leader, one request at a time."""

    def __init__(
        self,
        cluster: Cluster,
        node: int,
        searches: dict[TopicPartition, RecordSearch],
        found: dict[TopicPartition, int | None],
        deadline: Deadline,
    ) -> None:
        self._cluster = cluster
        self._node = node
        self._left = searches
        self._found = found
        self._deadline = deadline
        self._below_start: list[TopicPartition] = []

    async def run(self) -> None:
        try:
            await self._finish()
            if self._below_start:
                starts = await list_offsets(
                    self._cluster, dict.fromkeys(self._below_start, EARLIEST_TIMESTAMP), deadline=self._deadline
                )
                self._left = {partition: RecordSearch(listed.offset) for partition, listed in starts.items()}
                await self._finish()
        except OdradekError as error:
            # The times are an addition to the offsets, which do not depend on them.
            logger.info("broker %d did not return records, so their times are unknown: %s", self._node, error)

    async def _finish(self) -> None:
        while self._left and self._deadline.left_ms() > 0:
            asked = list(self._left.items())[:PARTITIONS_PER_FETCH]
            answers = await self._fetch(asked)
            if not answers:
                return
            for answer in answers:
                if answer.topic is not None:
                    partition = TopicPartition(answer.topic, answer.partition)
                    self._take(partition, answer, was_first=partition == asked[0][0])
            for partition, search in asked:
                # Those that are asked again go to the end, so that another partition is the first of the next request.
                if self._left.pop(partition, None) is not None:
                    self._left[partition] = search

    async def _fetch(self, asked: list[tuple[TopicPartition, RecordSearch]]) -> list[FetchedPartition]:
        view = self._cluster.view
        entries = []
        for partition, search in asked:
            entries.append(
                FetchEntry(
                    topic=partition.topic,
                    topic_id=view.topics[partition.topic].topic_id,
                    partition=partition.partition,
                    current_leader_epoch=view.leader_epoch(partition),
                    fetch_offset=search.offset,
                    last_fetched_epoch=NO_EPOCH,
                    log_start_offset=-1,
                    max_bytes=search.limit_bytes,
                )
            )
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=FETCH_MAX_BYTES, entries=entries)
        timeout_ms = min(self._deadline.left_ms(), self._cluster.settings.request_timeout_ms)
        response = await exchange_fetch(self._cluster, self._node, request, purpose="times", timeout_ms=timeout_ms)
        return response.partitions

    def _take(self, partition: TopicPartition, answer: FetchedPartition, *, was_first: bool) -> None:
        search = self._left.get(partition)
        if search is None:
            return
        if answer.error_code:
            del self._left[partition]
            if answer.error_code == OffsetOutOfRangeError.code and partition not in self._below_start:
                self._below_start.append(partition)
        elif search.take(answer.held, answer.high_watermark, was_first=was_first):
            del self._left[partition]
            if search.is_found and search.timestamp != NO_TIMESTAMP:
                self._found[partition] = search.timestamp
