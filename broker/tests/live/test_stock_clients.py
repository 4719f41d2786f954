"""Clients that people use, unchanged, against three real brokers: kcat, confluent-kafka, kafka-python and aiokafka."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator
from uuid import uuid4

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import pytest

from odradek.testing.cluster import RunningCluster

pytestmark = [pytest.mark.java, pytest.mark.slow]

RECORDS = [(f"key-{number % 17}".encode(), f"value {number}".encode()) for number in range(1000)]
PARTITIONS = 3


@pytest.fixture
async def topic(odradek_cluster: RunningCluster) -> AsyncIterator[str]:
    name = f"stock-{uuid4().hex[:8]}"
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": odradek_cluster.bootstrap})
    future = admin.create_topics([confluent_kafka.admin.NewTopic(name, PARTITIONS, 3)])[name]
    await asyncio.wrap_future(future)
    yield name
    await asyncio.wrap_future(admin.delete_topics([name])[name])


def kcat(odradek_cluster: RunningCluster, *arguments: str, stdin: bytes = b"") -> bytes:
    program = shutil.which("kcat")
    assert program is not None, "kcat is needed (Debian: apt-get install kcat)"
    command = [program, "-b", odradek_cluster.bootstrap, "-q", *arguments]
    result = subprocess.run(command, input=stdin, capture_output=True, check=False, timeout=120)
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_kcat(odradek_cluster: RunningCluster, topic: str, codec: str) -> None:
    lines = b"".join(key + b":" + value + b"\n" for key, value in RECORDS)
    produce = ["-P", "-t", topic, "-K:", "-z", codec, "-X", "acks=all", "-X", "enable.idempotence=true"]
    await asyncio.to_thread(kcat, odradek_cluster, *produce, stdin=lines)
    read = await asyncio.to_thread(kcat, odradek_cluster, "-C", "-t", topic, "-e", "-K:", "-o", "beginning")
    assert sorted(read.splitlines()) == sorted(lines.splitlines())
    group = ["-G", f"group-{uuid4().hex[:8]}", "-c", str(len(RECORDS)), "-K:", "-o", "beginning"]
    read = await asyncio.to_thread(kcat, odradek_cluster, *group, topic)
    assert sorted(read.splitlines()) == sorted(lines.splitlines())


async def test_kcat_lists_metadata(odradek_cluster: RunningCluster, topic: str) -> None:
    listed = await asyncio.to_thread(kcat, odradek_cluster, "-L", "-t", topic)
    assert b"3 brokers" in listed
    assert f'topic "{topic}" with 3 partitions'.encode() in listed


async def test_confluent_kafka(odradek_cluster: RunningCluster, topic: str) -> None:
    def produce_and_consume() -> list[tuple[bytes, bytes]]:
        servers = {"bootstrap.servers": odradek_cluster.bootstrap}
        failures: list[object] = []
        producer = confluent_kafka.Producer({**servers, "enable.idempotence": True, "compression.type": "lz4"})
        for key, value in RECORDS:
            producer.produce(topic, value, key, on_delivery=lambda error, _: error and failures.append(error))
        assert producer.flush(60) == 0
        assert failures == []
        group = {"group.id": f"group-{uuid4().hex[:8]}", "auto.offset.reset": "earliest"}
        consumer = confluent_kafka.Consumer({**servers, **group, "enable.auto.commit": False})
        consumer.subscribe([topic])
        found: list[tuple[bytes, bytes]] = []
        while len(found) < len(RECORDS):
            messages = consumer.consume(500, timeout=60)
            assert messages, f"only {len(found)} records came"
            assert all(message.error() is None for message in messages)
            found += [(message.key(), message.value()) for message in messages]
        consumer.commit(asynchronous=False)
        partitions = [confluent_kafka.TopicPartition(topic, number) for number in range(PARTITIONS)]
        committed = consumer.committed(partitions, timeout=30)
        assert sum(max(0, entry.offset) for entry in committed) == len(RECORDS)
        consumer.close()
        return found

    assert sorted(await asyncio.to_thread(produce_and_consume)) == sorted(RECORDS)


# kafka-python reads its schemas by functions of importlib that Python 3.11 deprecates and 3.13 brought back.
@pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")
async def test_kafka_python(odradek_cluster: RunningCluster, topic: str) -> None:
    import kafka

    def produce_and_consume() -> list[tuple[bytes, bytes]]:
        producer = kafka.KafkaProducer(bootstrap_servers=odradek_cluster.bootstrap, acks="all", linger_ms=5)
        for key, value in RECORDS:
            producer.send(topic, value, key=key, headers=[("h", b"1")])
        producer.flush(timeout=60)
        producer.close()
        consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=odradek_cluster.bootstrap,
            group_id=f"group-{uuid4().hex[:8]}",
            auto_offset_reset="earliest",
            consumer_timeout_ms=60_000,
        )
        found: list[tuple[bytes, bytes]] = []
        for message in consumer:
            assert message.headers == (("h", b"1"),) or message.headers == [("h", b"1")]
            found.append((message.key, message.value))
            if len(found) == len(RECORDS):
                break
        consumer.commit()
        consumer.close()
        return found

    assert sorted(await asyncio.to_thread(produce_and_consume)) == sorted(RECORDS)


async def test_aiokafka(odradek_cluster: RunningCluster, topic: str) -> None:
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=odradek_cluster.bootstrap, enable_idempotence=True)
    await producer.start()
    try:
        await asyncio.gather(*[await producer.send(topic, value, key) for key, value in RECORDS])
    finally:
        await producer.stop()
    consumers = [
        aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=odradek_cluster.bootstrap,
            group_id=f"group-{topic}",
            auto_offset_reset="earliest",
        )
        for _ in range(2)
    ]
    found: list[tuple[bytes, bytes]] = []
    await asyncio.gather(*(consumer.start() for consumer in consumers))
    try:
        while len(found) < len(RECORDS):
            for consumer in consumers:
                for messages in (await consumer.getmany(timeout_ms=500)).values():
                    found += [(message.key, message.value) for message in messages]
        assigned = [consumer.assignment() for consumer in consumers]
        assert sum(map(len, assigned)) == PARTITIONS
        assert not assigned[0] & assigned[1]
    finally:
        await asyncio.gather(*(consumer.stop() for consumer in consumers))
    assert sorted(found) == sorted(RECORDS)
