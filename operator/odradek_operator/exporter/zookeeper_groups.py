"""Reads the offsets of groups that store them in ZooKeeper, as all consumers before Kafka 0.8.2 did.

`service` calls it with a connected client. It reads `/consumers/GROUP/offsets/TOPIC/PARTITION` and writes nothing.
Znodes with invalid content are ignored.
"""

from __future__ import annotations

from odradek.base.types import TopicPartition
from odradek.zk import layout
from odradek.zk.layout import LayoutError
from odradek.zk.port import ZkClient
from odradek_operator.exporter.exporter_settings import ExporterSettings


async def read_commits(zk: ZkClient, settings: ExporterSettings) -> dict[str, dict[TopicPartition, int]]:
    """Return the commits of each group that has commits. Raises `ZkError`."""
    names = await zk.children_or_none(layout.CONSUMERS) or []
    groups = [name for name in names if settings.groups.takes(name)][: settings.max_groups]
    group_paths = {f"{layout.CONSUMERS}/{group}/offsets": group for group in groups}
    topic_paths = {
        f"{path}/{topic}": (group_paths[path], topic)
        for path, topics in (await zk.children_many(group_paths)).items()
        for topic in topics or ()
        if settings.topics.takes(topic)
    }
    places = {
        f"{path}/{number}": (topic_paths[path][0], TopicPartition(topic_paths[path][1], int(number)))
        for path, numbers in (await zk.children_many(topic_paths)).items()
        for number in numbers or ()
        if number.isascii() and number.isdigit()
    }
    commits: dict[str, dict[TopicPartition, int]] = {}
    for path, znode in (await zk.get_many(places)).items():
        offset = None if znode is None else _offset(path, znode[0])
        if offset is not None:
            group, partition = places[path]
            commits.setdefault(group, {})[partition] = offset
    return commits


def _offset(path: str, data: bytes) -> int | None:
    """Return the offset in a znode; None if the content is invalid."""
    try:
        offset = layout.decode_consumer_offset(path, data)
    except LayoutError:
        return None
    return offset if offset >= 0 else None
