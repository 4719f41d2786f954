"""Unmodified standard clients with three real brokers: kcat, confluent-kafka, kafka-python and aiokafka."""

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

from odradek.testing.running_cluster import RunningCluster

pytestmark = [pytest.mark.java, pytest.mark.slow]

Records = list[tuple[bytes, bytes]]
RECORDS: Records = [(f"key-{number % 17}".encode(), f"value {number}".encode()) for number in range(1000)]
PARTITIONS = 3
SECONDS = 90
"""Maximum wait of one step in seconds. All steps together usually take one or two."""


def by_key(records: Records) -> dict[bytes, list[bytes]]:
    """Return the values of each key in the order of their arrival, which is defined only within a partition."""
    found: dict[bytes, list[bytes]] = {}
    for key, value in records:
        found.setdefault(key, []).append(value)
    return found


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
    result = subprocess.run(command, input=stdin, capture_output=True, check=False, timeout=2 * SECONDS)
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout


def parsed(lines: bytes) -> Records:
    return [(key, value) for key, _, value in (line.partition(b":") for line in lines.splitlines())]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_kcat(odradek_cluster: RunningCluster, topic: str, codec: str) -> None:
    lines = b"".join(key + b":" + value + b"\n" for key, value in RECORDS)
    produce = ["-P", "-t", topic, "-K:", "-z", codec, "-X", "acks=all", "-X", "enable.idempotence=true"]
    await asyncio.to_thread(kcat, odradek_cluster, *produce, stdin=lines)
    read = await asyncio.to_thread(kcat, odradek_cluster, "-C", "-t", topic, "-e", "-K:", "-o", "beginning")
    assert by_key(parsed(read)) == by_key(RECORDS)
    group = ["-G", f"group-{uuid4().hex[:8]}", "-c", str(len(RECORDS)), "-K:", "-o", "beginning"]
    read = await asyncio.to_thread(kcat, odradek_cluster, *group, topic)
    assert by_key(parsed(read)) == by_key(RECORDS)


async def test_kcat_lists_metadata_and_offsets(odradek_cluster: RunningCluster, topic: str) -> None:
    for arguments in ([], ["-t", topic]):
        async with asyncio.timeout(SECONDS):
            # The broker that responds may not know the topic yet.
            output = f'topic "{topic}" with 3 partitions'.encode()
            while output not in (listed := await asyncio.to_thread(kcat, odradek_cluster, "-L", *arguments)):
                pass
        assert b"3 brokers" in listed
    await asyncio.to_thread(kcat, odradek_cluster, "-P", "-t", topic, "-p", "1", stdin=b"first\nsecond\n")
    for time, offset in (("-2", b"0"), ("-1", b"2")):
        output = await asyncio.to_thread(kcat, odradek_cluster, "-Q", "-t", f"{topic}:1:{time}")
        assert output.split()[-1] == offset


async def test_confluent_kafka(odradek_cluster: RunningCluster, topic: str) -> None:
    def produce_and_consume() -> Records:
        servers = {"bootstrap.servers": odradek_cluster.bootstrap}
        failures: list[object] = []
        producer = confluent_kafka.Producer({**servers, "enable.idempotence": True, "compression.type": "lz4"})
        for key, value in RECORDS:
            producer.produce(topic, value, key, on_delivery=lambda error, _: error and failures.append(error))
        assert producer.flush(SECONDS) == 0
        assert failures == []
        group = {"group.id": f"group-{uuid4().hex[:8]}", "auto.offset.reset": "earliest"}
        consumer = confluent_kafka.Consumer({**servers, **group, "enable.auto.commit": False})
        consumer.subscribe([topic])
        found: Records = []
        while len(found) < len(RECORDS):
            messages = consumer.consume(len(RECORDS) - len(found), timeout=SECONDS)
            assert messages, f"only {len(found)} records came"
            assert all(message.error() is None for message in messages)
            found += [(message.key(), message.value()) for message in messages]
        consumer.commit(asynchronous=False)
        partitions = [confluent_kafka.TopicPartition(topic, number) for number in range(PARTITIONS)]
        committed = consumer.committed(partitions, timeout=SECONDS)
        assert sum(max(0, entry.offset) for entry in committed) == len(RECORDS)
        consumer.close()
        return found

    assert by_key(await asyncio.to_thread(produce_and_consume)) == by_key(RECORDS)


async def test_confluent_admin(odradek_cluster: RunningCluster, topic: str) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": odradek_cluster.bootstrap})
    async with asyncio.timeout(SECONDS):
        while topic not in (listed := await asyncio.to_thread(admin.list_topics, timeout=SECONDS)).topics:
            pass
    assert sorted(listed.brokers) == [0, 1, 2]
    assert sorted(len(partition.isrs) for partition in listed.topics[topic].partitions.values()) == [3] * PARTITIONS
    cluster = await asyncio.wrap_future(admin.describe_cluster())
    assert cluster.cluster_id == listed.cluster_id
    assert sorted(node.id for node in cluster.nodes) == [0, 1, 2]
    assert cluster.controller.id in (0, 1, 2)

    kind = confluent_kafka.admin.ConfigResource.Type.TOPIC
    operation = confluent_kafka.admin.AlterConfigOpType.SET
    entry = confluent_kafka.admin.ConfigEntry("retention.ms", "7000000", incremental_operation=operation)
    change = confluent_kafka.admin.ConfigResource(kind, topic, incremental_configs=[entry])
    await asyncio.wrap_future(admin.incremental_alter_configs([change])[change])
    asked = confluent_kafka.admin.ConfigResource(kind, topic)

    async def retention() -> str:
        return str((await asyncio.wrap_future(admin.describe_configs([asked])[asked]))["retention.ms"].value)

    async with asyncio.timeout(SECONDS):
        # The broker that responds may not have read the change from ZooKeeper yet.
        while await retention() != "7000000":
            pass
    more = confluent_kafka.admin.NewPartitions(topic, PARTITIONS + 2)
    await asyncio.wrap_future(admin.create_partitions([more])[topic])


# kafka-python reads its schemas with functions of importlib that Python 3.11 deprecated and 3.13 restored.
@pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")
async def test_kafka_python(odradek_cluster: RunningCluster, topic: str) -> None:
    import kafka

    def produce_and_consume() -> Records:
        producer = kafka.KafkaProducer(
            bootstrap_servers=odradek_cluster.bootstrap, acks="all", linger_ms=5, compression_type="gzip"
        )
        for key, value in RECORDS:
            producer.send(topic, value, key=key, headers=[("h", b"1")])
        producer.flush(timeout=SECONDS)
        producer.close()
        consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=odradek_cluster.bootstrap,
            group_id=f"group-{uuid4().hex[:8]}",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            consumer_timeout_ms=SECONDS * 1000,
        )
        found: Records = []
        for message in consumer:
            assert list(message.headers) == [("h", b"1")]
            found.append((message.key, message.value))
            if len(found) == len(RECORDS):
                break
        consumer.commit()
        committed = [consumer.committed(kafka.TopicPartition(topic, number)) for number in range(PARTITIONS)]
        assert sum(offset or 0 for offset in committed) == len(RECORDS)
        consumer.close()
        return found

    assert by_key(await asyncio.to_thread(produce_and_consume)) == by_key(RECORDS)


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
    await asyncio.gather(*(consumer.start() for consumer in consumers))
    found: Records = []
    try:
        async with asyncio.timeout(SECONDS):
            while len(found) < len(RECORDS) or not shared(consumers):
                for consumer in consumers:
                    for messages in (await consumer.getmany(timeout_ms=100)).values():
                        found += [(message.key, message.value) for message in messages]
    finally:
        await asyncio.gather(*(consumer.stop() for consumer in consumers))
    assert by_key(found) == by_key(RECORDS)


def shared(consumers: list[aiokafka.AIOKafkaConsumer]) -> bool:
    """Return whether both members have partitions, and each partition belongs to exactly one."""
    first, second = (consumer.assignment() for consumer in consumers)
    return bool(first and second) and not first & second and len(first | second) == PARTITIONS


# Transactions: each client commits a transaction and aborts one.


def committed(odradek_cluster: RunningCluster, topic: str) -> list[bytes]:
    """Return the values of partition 0 that a read-committed consumer sees up to its end."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": odradek_cluster.bootstrap,
            "group.id": f"stock-{uuid4().hex[:8]}",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found = []
    while True:
        message = consumer.poll(SECONDS)
        assert message is not None
        if message.error() is not None:
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
            consumer.close()
            return found
        found.append(message.value())


def test_transactions_of_librdkafka(odradek_cluster: RunningCluster, topic: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": odradek_cluster.bootstrap, "transactional.id": f"rdkafka-{topic}"}
    )
    producer.init_transactions(SECONDS)
    for value, end in ((b"kept", producer.commit_transaction), (b"dropped", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(SECONDS)
        end(SECONDS)
    assert committed(odradek_cluster, topic) == [b"kept"]


@pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")
def test_transactions_of_kafka_python(odradek_cluster: RunningCluster, topic: str) -> None:
    import kafka

    producer = kafka.KafkaProducer(
        bootstrap_servers=odradek_cluster.bootstrap,
        transactional_id=f"kafka-python-{topic}",
        max_block_ms=SECONDS * 1000,
    )
    try:
        producer.init_transactions()
        for value, end in ((b"kept", producer.commit_transaction), (b"dropped", producer.abort_transaction)):
            producer.begin_transaction()
            producer.send(topic, value, partition=0).get(timeout=SECONDS)
            end()
    finally:
        producer.close(timeout=SECONDS)
    assert committed(odradek_cluster, topic) == [b"kept"]


async def test_transactions_of_aiokafka(odradek_cluster: RunningCluster, topic: str) -> None:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=odradek_cluster.bootstrap, transactional_id=f"aiokafka-{topic}"
    )
    async with asyncio.timeout(SECONDS):
        await producer.start()
        try:
            for value, end in ((b"kept", producer.commit_transaction), (b"dropped", producer.abort_transaction)):
                await producer.begin_transaction()
                await producer.send_and_wait(topic, value, partition=0)
                await end()
        finally:
            await producer.stop()
    assert await asyncio.to_thread(committed, odradek_cluster, topic) == [b"kept"]
