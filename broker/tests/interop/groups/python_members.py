"""Members of a group with clients of others for Python: aiokafka, kafka-python and librdkafka.

A test starts each as a process: `python python_members.py CLIENT SERVERS GROUP TOPIC`, with further
settings as name=value for librdkafka. A member runs until it is killed. It prints "assigned GENERATION
PARTITION..." whenever its generation or its assignment has changed, and "records PARTITION FIRST LAST" for records that
it has received. librdkafka does not tell its generation, which is printed as -1.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

POLL_MS: Final = 200
SESSION_MS: Final = 6000
HEARTBEAT_MS: Final = 1000


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Report:
    """Prints what a member has."""

    def __init__(self) -> None:
        """Nothing is assigned yet."""
        self._told = ""

    def assigned(self, generation: int, partitions: Iterable[int]) -> None:
        """Print the assignment, if it has changed."""
        now = " ".join(map(str, ("assigned", generation, *sorted(partitions))))
        if now != self._told:
            self._told = now
            _tell(now)

    @staticmethod
    def records(partition: int, offsets: Sequence[int]) -> None:
        """Print the range of received offsets."""
        if offsets:
            _tell(f"records {partition} {offsets[0]} {offsets[-1]}")

    @staticmethod
    def failed(error: object) -> None:
        """Print that a commit failed, which is normal during a rebalance."""
        _tell(f"commit failed: {error}")


def run_librdkafka(servers: str, group: str, topic: str, settings: Mapping[str, str]) -> None:
    """Run a member of confluent-kafka."""
    from confluent_kafka import Consumer, KafkaException

    own = {
        "bootstrap.servers": servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "log_level": 0,
        **settings,
    }
    consumer, report = Consumer(own), Report()
    consumer.subscribe([topic])
    while True:
        got: dict[int, list[int]] = {}
        for message in consumer.consume(500, POLL_MS / 1000):
            partition, offset = message.partition(), message.offset()
            if message.error() is None and partition is not None and offset is not None:
                got.setdefault(partition, []).append(offset)
        report.assigned(-1, [each.partition for each in consumer.assignment()])
        for partition, offsets in got.items():
            report.records(partition, offsets)
        try:
            if got:
                consumer.commit(asynchronous=False)
        except KafkaException as error:
            report.failed(error)


def run_aiokafka(servers: str, group: str, topic: str, settings: Mapping[str, str]) -> None:
    """Run a member of aiokafka."""
    from aiokafka import AIOKafkaConsumer
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.errors import KafkaError

    async def work() -> None:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            partition_assignment_strategy=(RangePartitionAssignor,),
        )
        report = Report()
        await consumer.start()
        while True:
            got = await consumer.getmany(timeout_ms=POLL_MS)
            report.assigned(consumer._coordinator.generation, [each.partition for each in consumer.assignment()])
            for partition, records in got.items():
                report.records(partition.partition, [record.offset for record in records])
            try:
                await consumer.commit()
            except KafkaError as error:
                report.failed(error)

    asyncio.run(work())


def run_kafka_python(servers: str, group: str, topic: str, settings: Mapping[str, str]) -> None:
    """Run a member of kafka-python."""
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import KafkaError

    consumer = KafkaConsumer(
        bootstrap_servers=servers.split(","),
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        partition_assignment_strategy=[RangePartitionAssignor],
    )
    report = Report()

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        """Prints each assignment.

        Between the responses to JoinGroup and SyncGroup, the consumer has the new generation with its old assignment.
        """

        def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            """Wait for the next assignment."""

        def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            """Print it."""
            generation = consumer._coordinator._generation.generation_id
            report.assigned(generation, [each.partition for each in assigned])

    consumer.subscribe([topic], listener=Listener())
    while True:
        got = consumer.poll(timeout_ms=POLL_MS)
        for partition, records in got.items():
            report.records(partition.partition, [record.offset for record in records])
        try:
            consumer.commit()
        except KafkaError as error:
            report.failed(error)


CLIENTS: Final[Mapping[str, Callable[[str, str, str, Mapping[str, str]], Any]]] = {
    "librdkafka": run_librdkafka,
    "aiokafka": run_aiokafka,
    "kafka-python": run_kafka_python,
}


def main(client: str, servers: str, group: str, topic: str, *settings: str) -> None:
    """Run a member until it is killed."""
    CLIENTS[client](servers, group, topic, dict(setting.split("=", 1) for setting in settings))


if __name__ == "__main__":
    main(*sys.argv[1:])
