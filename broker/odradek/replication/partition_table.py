"""The replicas of this broker: the table that the data path, leadership and metrics share.

`ReplicaManager` owns it; it is used on the event loop only. A replica is online (it has a partition with a log),
offline (its log directory failed) or not on this broker.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from odradek.base.errors import (
    KafkaStorageError,
    NotLeaderOrFollowerError,
    ProtocolError,
    UnknownTopicOrPartitionError,
)
from odradek.base.types import TopicPartition
from odradek.cluster import MetadataCache
from odradek.log.partition_log import PartitionLog
from odradek.replication.partition import Partition, Role

HostedPartition: TypeAlias = Partition[PartitionLog]


class PartitionTable:
    """The hosted partitions by topic and number."""

    __slots__ = ("_cluster", "offline", "online")

    def __init__(self, cluster: MetadataCache) -> None:
        """`cluster` distinguishes a partition on other brokers from one that does not exist."""
        self._cluster: Final = cluster
        self.online: dict[TopicPartition, HostedPartition] = {}
        self.offline: set[TopicPartition] = set()

    def missing(self, topic_partition: TopicPartition) -> type[ProtocolError]:
        """Return why there is no online partition: storage failure, on other brokers, or unknown."""
        if topic_partition in self.offline:
            return KafkaStorageError
        if self._cluster.image.partition(topic_partition) is not None:
            return NotLeaderOrFollowerError
        return UnknownTopicOrPartitionError

    def is_alive(self, broker_id: int) -> bool:
        """Whether a broker is registered, according to the controller's last update."""
        return broker_id in self._cluster.image.brokers

    def may_join(self, broker_id: int) -> bool:
        """Whether a follower may be proposed for an ISR: not if it has left, according to the controller's last update.

        A controller that commits the ISR checks that, too; if leaders write it to ZooKeeper, this is the only check.
        """
        brokers = self._cluster.image.brokers
        return not brokers or broker_id in brokers

    def rack(self, broker_id: int) -> str | None:
        """Return the rack of a live broker; None if it has none or is not alive."""
        broker = self._cluster.image.brokers.get(broker_id)
        return None if broker is None else broker.rack

    def leaders(self) -> list[HostedPartition]:
        """Return the partitions that this broker leads."""
        return [partition for partition in self.online.values() if partition.is_leader]

    def followers(self) -> list[HostedPartition]:
        """Return the partitions that this broker follows."""
        return [partition for partition in self.online.values() if partition.role is Role.FOLLOWER]
