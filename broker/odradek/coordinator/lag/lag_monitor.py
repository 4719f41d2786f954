"""Measures the lag of the groups that this broker coordinates, in records and in seconds (docs/design/0027).

It asks the leader of each partition for the end of the log, and for the batch of the first record that a group has not
read. `app/coordinator_observation` reads the result at each scrape. Invariants: one measurement at a time, one request
at a time to each broker; a lag is never negative; what is not known is absent, and so is a result that is too old.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from odradek.base.errors import OdradekError, OffsetOutOfRangeError
from odradek.base.ports import Clock
from odradek.base.tasks import TaskOwner
from odradek.base.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition
from odradek.cluster import ClusterImage, MetadataCache
from odradek.coordinator.broker_links import HIGHEST_VERSION, BrokerLinks
from odradek.coordinator.lag import lag_requests
from odradek.coordinator.lag.lag_lines import measured_group
from odradek.coordinator.lag.lag_values import (
    LagSettings,
    MeasuredGroup,
    ObservedGroup,
    PartitionLag,
    Place,
    RecordTimes,
    portions,
)
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.messages.fetch import FetchResponsePartitionData
from odradek.records.first_record import FIRST_LIMIT_BYTES, RecordSearch

logger = logging.getLogger(__name__)

PARTITIONS_PER_LIST: Final = 1_000
PARTITIONS_PER_FETCH: Final = 32
FETCH_MAX_BYTES: Final = PARTITIONS_PER_FETCH * FIRST_LIMIT_BYTES
SEARCHES: Final = 1_000
"""Maximum number of offsets whose first record is looked for in one measurement."""
OFFSETS_AT_ONCE: Final = 100
"""Number of offsets that are handled before the event loop runs other work."""
STALE_INTERVALS: Final = 3
"""After so many intervals without a new measurement, the last one is not provided any more."""


class LagMonitor:
    """Measures periodically, while the setting `group.lag.metrics.enable` is true."""

    def __init__(
        self,
        *,
        groups: Callable[[], Sequence[ObservedGroup]],
        cluster: MetadataCache,
        links: BrokerLinks,
        clock: Clock,
        settings: Callable[[], LagSettings],
    ) -> None:
        """`groups` returns the groups of this broker. The caller closes `links` after the monitor."""
        self._groups: Final = groups
        self._cluster: Final = cluster
        self._links: Final = links
        self._clock: Final = clock
        self._settings: Final = settings
        self._tasks: Final = TaskOwner()
        self._times: Final = RecordTimes()
        self._measured: tuple[MeasuredGroup, ...] = ()
        self._measured_at_ms = 0.0
        self.omitted: int = 0
        """Number of committed offsets beyond `group.lag.metrics.max.partitions`."""

    def start(self) -> None:
        """Start to measure, first after one interval."""
        self._tasks.spawn(self._run(), name="group-lag")

    async def close(self) -> None:
        """Stop. Idempotent."""
        await self._tasks.close()
        self._clear()

    def measured(self) -> list[MeasuredGroup]:
        """Return the last measurement, without groups that have since been deleted or moved. Empty if it is too old."""
        age_ms = self._clock.monotonic_ms() - self._measured_at_ms
        if age_ms > STALE_INTERVALS * self._settings().interval_ms:
            return []
        return [measured for measured in self._measured if measured.group.is_coordinated]

    async def _run(self) -> None:
        while True:
            await self._clock.sleep_ms(self._settings().interval_ms)
            if not self._settings().is_enabled:
                self._clear()
                continue
            try:
                await self.measure()
            except Exception:
                # A bug. The series disappear, but the next measurement may succeed.
                self._clear()
                logger.exception("the lag of groups could not be measured")

    def _clear(self) -> None:
        self._measured = ()
        self.omitted = 0

    async def measure(self) -> None:
        """Measure once."""
        committed = await self._committed()
        partitions = sorted({partition for _, offsets in committed for partition in offsets})
        # Ends are read after commits: an end that is older than a commit would hide lag.
        ends = await self._offsets(partitions, LATEST_TIMESTAMP)
        image = self._cluster.image
        places = {
            place
            for _, offsets in committed
            for partition, offset in offsets.items()
            if offset < ends.get(partition, offset) and (place := _place(image, partition, offset)) is not None
        }
        await self._find_times(self._times.due(places, self._clock.monotonic_ms(), SEARCHES))
        wall_ms = self._clock.wall_ms()
        measured, handled = [], 0
        for group, offsets in committed:
            rows = (self._row(image, group, item, ends.get(item[0]), wall_ms) for item in sorted(offsets.items()))
            measured.append(measured_group(group, rows))
            handled += len(offsets)
            if handled >= OFFSETS_AT_ONCE:
                handled = 0
                await asyncio.sleep(0)
        self._measured = tuple(measured)
        self._measured_at_ms = self._clock.monotonic_ms()

    async def _committed(self) -> list[tuple[ObservedGroup, dict[TopicPartition, int]]]:
        """Return the committed offsets of the groups in the order of their ids, as many as are to be provided."""
        left, omitted, handled = self._settings().max_partitions, 0, 0
        found = []
        for group in sorted(self._groups(), key=lambda group: group.group_id):
            offsets = group.committed_offsets()
            if len(offsets) > left:
                omitted += len(offsets)
            elif offsets:
                left -= len(offsets)
                found.append((group, offsets))
            handled += 1 + len(offsets)
            if handled >= OFFSETS_AT_ONCE:
                handled = 0
                await asyncio.sleep(0)
        if omitted and not self.omitted:
            logger.warning(
                "the lag of %d committed offsets is not provided: group.lag.metrics.max.partitions=%d",
                omitted,
                self._settings().max_partitions,
            )
        self.omitted = omitted
        return found

    def _row(
        self,
        image: ClusterImage,
        group: ObservedGroup,
        item: tuple[TopicPartition, int],
        end: int | None,
        wall_ms: int,
    ) -> PartitionLag:
        partition, offset = item
        labels = {
            "consumergroup": group.group_id,
            "topic": partition.topic,
            "partition": str(partition.partition),
        }
        records = None if end is None else max(0, end - offset)
        seconds: float | None = None
        if records == 0:
            seconds = 0.0
        elif records is not None and (place := _place(image, partition, offset)) is not None:
            seconds = self._times.age_seconds(place, wall_ms)
        return PartitionLag(labels, offset, records, seconds)

    # Requests

    async def _ask(self, node: int, api_key: ApiKey, message: Message) -> Any:
        at_most = lag_requests.FETCH_BY_NAME if api_key is ApiKey.FETCH else HIGHEST_VERSION
        return await self._links.ask(node, api_key, lambda _: message, at_most=at_most)

    def _by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Return the partitions by leader, without those that have no live one."""
        image = self._cluster.image
        found: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            state = image.partition(partition)
            if state is not None and self._links.reaches(state.leader):
                found.setdefault(state.leader, []).append(partition)
        return found

    async def _offsets(self, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        """Return an offset of each partition whose leader answers."""
        found: dict[TopicPartition, int] = {}
        requests = (self._ask_offsets(*led, timestamp, found) for led in self._by_leader(partitions).items())
        await asyncio.gather(*requests)
        return found

    async def _ask_offsets(
        self, node: int, partitions: list[TopicPartition], timestamp: int, found: dict[TopicPartition, int]
    ) -> None:
        try:
            for portion in portions(partitions, PARTITIONS_PER_LIST):
                response = await self._ask(node, ApiKey.LIST_OFFSETS, lag_requests.list_offsets(portion, timestamp))
                found.update(lag_requests.listed_offsets(response))
        except OdradekError as error:
            logger.debug("broker %d did not list offsets, so lag is unknown: %s", node, error)

    async def _find_times(self, places: Sequence[Place]) -> None:
        by_partition: dict[TopicPartition, list[Place]] = {}
        for place in places:
            by_partition.setdefault(place.partition, []).append(place)
        await asyncio.gather(
            *(
                self._find_at(node, [place for partition in led for place in by_partition[partition]])
                for node, led in self._by_leader(by_partition).items()
            )
        )

    async def _find_at(self, node: int, places: Sequence[Place]) -> None:
        try:
            below = await self._search(node, {place: RecordSearch(place.offset) for place in places})
            if below:
                # Retention has deleted the records at these offsets, so the first record of the log is the next one.
                starts = await self._offsets([place.partition for place in below], EARLIEST_TIMESTAMP)
                await self._search(
                    node,
                    {place: RecordSearch(starts[place.partition]) for place in below if place.partition in starts},
                )
        except OdradekError as error:
            logger.debug("broker %d did not return records, so their age is unknown: %s", node, error)

    async def _search(self, node: int, left: dict[Place, RecordSearch]) -> list[Place]:
        """Search until every search is over. Returns the places below the start of their log."""
        below = []
        while left:
            asked: dict[TopicPartition, Place] = {}
            for place in left:
                if len(asked) == PARTITIONS_PER_FETCH:
                    break
                asked.setdefault(place.partition, place)
            searches = {partition: left[place] for partition, place in asked.items()}
            response = await self._ask(node, ApiKey.FETCH, lag_requests.fetch(searches, FETCH_MAX_BYTES))
            answers = lag_requests.fetched(response)
            first = next(iter(asked))
            for partition, place in asked.items():
                search, answer = left.pop(place), answers.get(partition)
                if answer is None:
                    continue
                if answer.error_code == OffsetOutOfRangeError.code:
                    below.append(place)
                elif not answer.error_code and not self._take(place, search, answer, was_first=partition == first):
                    left[place] = search
        return below

    def _take(self, place: Place, search: RecordSearch, answer: FetchResponsePartitionData, *, was_first: bool) -> bool:
        """Return whether the search is over."""
        try:
            is_over = search.take(answer.records or b"", answer.high_watermark, was_first=was_first)
        except OdradekError as error:
            logger.debug("the batch of %s at offset %d is invalid: %s", place.partition, search.offset, error)
            return True
        if search.is_found:
            self._times.put(place, search.timestamp, self._clock.monotonic_ms())
        return is_over


def _place(image: ClusterImage, partition: TopicPartition, offset: int) -> Place | None:
    """Return the place of an offset; None if the topic has been deleted meanwhile."""
    state = image.partition(partition)
    if state is None:
        return None
    return Place(partition, offset, state.leader_epoch, image.topic_id(partition.topic))
