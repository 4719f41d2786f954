"""DescribeProducers: the producer state of this broker's logs (KIP-664).

As in Apache Kafka, every replica answers, not only the leader, so that operators can compare replicas.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.base.errors import NONE, OdradekError
from odradek.base.topic_rules import check_topic_name
from odradek.base.types import TopicPartition
from odradek.log.producers.producer_state import ActiveProducer
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.messages.produce import DescribeProducersRequest
from odradek.replication.replica_manager import ReplicaManager
from odradek.server.dispatch import Handler, RequestContext, route
from odradek.server.failures import wire_error


class ProducerHandlers:
    """The handler that describes producers."""

    def __init__(self, *, replicas: ReplicaManager) -> None:
        """`replicas` has the logs of this broker."""
        self._replicas = replicas

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """The handlers by API."""
        return dict([route(DescribeProducersRequest, self.describe_producers)])

    async def describe_producers(self, context: RequestContext, request: DescribeProducersRequest) -> Message:
        """Handle DescribeProducers: return the active producers of each partition, or an error."""
        topics = [
            {
                "name": topic.name,
                "partitions": [self._described(topic.name, number) for number in topic.partition_indexes],
            }
            for topic in request.topics
        ]
        return {"throttle_time_ms": 0, "topics": topics}

    def _described(self, topic: str, number: int) -> Message:
        try:
            check_topic_name(topic)
            producers = self._replicas.partition(TopicPartition(topic, number)).log.active_producers()
        except OdradekError as error:
            known = wire_error(error)
            return {
                "partition_index": number,
                "error_code": known.code,
                "error_message": str(known),
                "active_producers": (),
            }
        return {
            "partition_index": number,
            "error_code": NONE,
            "error_message": None,
            "active_producers": [_active(producer) for producer in producers],
        }


def _active(producer: ActiveProducer) -> Message:
    return {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "last_sequence": producer.last_sequence,
        "last_timestamp": producer.last_timestamp,
        "coordinator_epoch": producer.coordinator_epoch,
        "current_txn_start_offset": producer.transaction_first_offset,
    }
