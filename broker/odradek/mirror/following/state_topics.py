"""A topic with one partition in which mirrors keep state. Reads its records from the start, and later the new ones.

`topic_follower` and `group_follower` use it. Invariant: a call of `read` returns every record that was written before
the call, each in one call only.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from odradek.base.errors import TopicAlreadyExistsError
from odradek.base.types import TopicPartition
from odradek.client.admin import Admin
from odradek.client.cluster_client import Cluster
from odradek.client.consumer.consumer import Consumer
from odradek.client.models import ConsumerRecord, NewTopic
from odradek.client.settings import ClientSettings
from odradek.mirror.mirror_config import MirrorConfig

_SEGMENT_BYTES: Final = 50 * 2**20
"""Only closed segments are compacted, so this limits what a restart has to read. Kafka uses the same size for the
offsets of Kafka Connect."""
_MAX_RECORDS: Final = 5_000
_WAIT_MS: Final = 1_000


async def create_state_topics(config: MirrorConfig, target: Cluster, *names: str) -> None:
    """Create the compacted topics that do not exist yet in the target, with one partition each.

    Raises the errors of `Admin.create_topics`.
    """
    view = await target.fresh_view(names)
    missing = [name for name in names if name not in view.topics or not view.topics[name].partitions]
    if not missing:
        return
    replicas = min(config.internal_replication_factor, max(1, len(view.nodes)))
    configs = (("cleanup.policy", "compact"), ("segment.bytes", str(_SEGMENT_BYTES)))
    for name in missing:
        topic = NewTopic(name=name, partitions=1, replication_factor=replicas, configs=configs)
        try:
            await Admin(cluster=target).create_topics([topic])
        except TopicAlreadyExistsError:
            # Another process of the mirror was faster, or the metadata was out of date.
            continue


class StateTopic:
    """Reads the partition 0 of one topic. `close` is idempotent."""

    def __init__(self, cluster: Cluster, settings: ClientSettings, name: str) -> None:
        """`cluster` is started and closed by the caller. `settings` are those of a client of the same cluster."""
        self.name: Final = name
        self._partition: Final = TopicPartition(name, 0)
        self._admin: Final = Admin(cluster=cluster)
        self._settings: Final = settings.replace(
            auto_offset_reset="earliest", enable_auto_commit=False, group_id=None, max_poll_records=_MAX_RECORDS
        )
        self._consumer: Consumer | None = None

    async def read(self) -> AsyncIterator[list[ConsumerRecord]]:
        """Yield the records from the end of the last call, at first from the start, up to the current end."""
        if self._consumer is None:
            consumer = Consumer(self._settings)
            await consumer.start()
            consumer.assign([self._partition])
            self._consumer = consumer
        consumer = self._consumer
        end = (await self._admin.list_offsets({self._partition: "latest"}))[self._partition].offset
        while await consumer.position(self._partition) < end:
            for records in (await consumer.getmany(timeout_ms=_WAIT_MS)).values():
                yield records

    async def close(self) -> None:
        """Close the connections."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.close()
