"""What a mirror would copy: the topics of its sources, for `odradek mirror --check`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from odradek.base.errors import ProtocolError
from odradek.base.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition
from odradek.client.cluster_client import Cluster
from odradek.client.offsets import list_offsets
from odradek.client.settings import ClientSettings
from odradek.mirror.mirror_config import MirrorConfig, SourceConfig

_TIMEOUT_MS: Final = 20_000
"""A person waits for the result."""


@dataclass(frozen=True, slots=True)
class CheckedTopic:
    """A topic that would be copied."""

    source: str
    topic: str
    partitions: int
    offsets: int
    """Offsets between the start and the end of its partitions; not each needs to have a record."""
    target_topic: str
    target_partitions: int
    """0 if the topic does not exist in the target."""


async def check_mirror(config: MirrorConfig) -> list[CheckedTopic]:
    """Return the topics that would be copied. Raises `ProtocolError` with the name of a cluster that fails."""
    async with await _connected("the target", config.target.settings(default_api_timeout_ms=_TIMEOUT_MS)) as target:
        existing = (await target.fresh_view(None)).topics
        found = []
        for source in config.sources:
            settings = source.address.settings(default_api_timeout_ms=_TIMEOUT_MS)
            async with await _connected(f"source {source.name}", settings) as cluster:
                for topic, partitions, offsets in await _topics(cluster, source):
                    copy = existing.get(source.target_topic(topic))
                    count = 0 if copy is None else len(copy.partitions)
                    found.append(
                        CheckedTopic(source.name, topic, partitions, offsets, source.target_topic(topic), count)
                    )
        return found


async def _connected(what: str, settings: ClientSettings) -> Cluster:
    cluster = Cluster(settings)
    try:
        await cluster.start()
    except ProtocolError as error:
        raise type(error)(f"{what}: {error}") from error
    return cluster


async def _topics(cluster: Cluster, source: SourceConfig) -> Sequence[tuple[str, int, int]]:
    """Return name, number of partitions and number of offsets of each topic that is copied."""
    view = await cluster.fresh_view(None)
    topics = {name: topic for name, topic in sorted(view.topics.items()) if source.copies(name) and topic.partitions}
    partitions = [TopicPartition(name, number) for name, topic in topics.items() for number in topic.partitions]
    if not partitions:
        return []
    deadline = cluster.deadline(f"the offsets of source {source.name}")
    starts = await list_offsets(cluster, dict.fromkeys(partitions, EARLIEST_TIMESTAMP), deadline=deadline)
    ends = await list_offsets(cluster, dict.fromkeys(partitions, LATEST_TIMESTAMP), deadline=deadline)
    return [
        (
            name,
            len(topic.partitions),
            sum(
                ends[TopicPartition(name, number)].offset - starts[TopicPartition(name, number)].offset
                for number in topic.partitions
            ),
        )
        for name, topic in topics.items()
    ]
