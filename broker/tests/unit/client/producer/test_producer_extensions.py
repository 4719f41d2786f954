"""What applications plug into a producer, with an in-memory cluster in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.base.errors import ConfigError, MessageTooLargeError
from odradek.base.types import TopicPartition
from odradek.client.extensions.interceptors import ProducerInterceptor, ProducerRecord
from odradek.client.extensions.serializers import JsonSerializer, SerializationError
from odradek.client.models import RecordMetadata
from odradek.client.producer.producer import Producer
from odradek.protocol.apis import ApiKey
from odradek.records.v2.batch import read_header
from odradek.records.v2.record import decode_batch
from odradek_testkit.loop import VirtualClock, run_virtual


def producer_of(cluster: Any, **options: Any) -> Producer:
    return Producer("fake:9001", clock=VirtualClock(), connect=cluster.connect, **options)


def written(cluster: Any, partition: int = 0) -> list[tuple[bytes | None, bytes | None]]:
    """Return key and value of each record of a partition."""
    return [
        (record.key, record.value)
        for batch in cluster.logs[TopicPartition("t", partition)].batches
        for record in decode_batch(batch, 0, read_header(batch), limit=1 << 20)
    ]


def test_serializers_convert_keys_and_values(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})

    async def main() -> None:
        async with producer_of(cluster, key_serializer=str.encode, value_serializer=JsonSerializer()) as producer:
            await producer.send("t", {"a": 1}, key="k")
            await producer.send("t", None, key="k")
            await producer.send_many("t", [("m", [2], 1), (None, None, 2)])
            await producer.flush()
            with pytest.raises(SerializationError, match="value_serializer failed for topic t: TypeError"):
                await producer.send("t", {1, 2})

    run_virtual(main())
    assert written(cluster) == [(b"k", b'{"a":1}'), (b"k", None), (b"m", b"[2]"), (None, None)]


def test_a_function_chooses_the_partitions(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 3})
    seen: list[Any] = []

    def by_length(topic: str, key: bytes | None, value: bytes | None, partitions: Any, available: Any) -> int:
        seen.append((topic, key, value, partitions, available))
        return len(value or b"")

    async def main() -> None:
        async with producer_of(cluster, partitioner=by_length, value_serializer=str.encode) as producer:
            assert (await producer.send_and_wait("t", "ab", key=b"k")).partition == 2
            assert (await producer.send_and_wait("t", "ab", key=b"k", partition=0)).partition == 0
            result = await (await producer.send_many("t", [(None, "a", 1), (None, "", 1)]))
            assert sorted(batch.partition for batch in result.batches) == [0, 1]
            with pytest.raises(ConfigError, match="topic t has no partition 3"):
                await producer.send("t", "abc")

    run_virtual(main())
    assert seen[0] == ("t", b"k", b"ab", [0, 1, 2], [0, 1, 2])
    assert len(seen) == 4


def test_a_partitioner_can_be_named(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 3})

    async def main() -> None:
        async with producer_of(cluster, partitioner="round-robin") as producer:
            found = [(await producer.send_and_wait("t", b"v", key=b"k")).partition for _ in range(4)]
        assert found == [0, 1, 2, 0]
        with pytest.raises(ConfigError, match="partitioner='sticky' is not allowed"):
            producer_of(cluster, partitioner="sticky")

    run_virtual(main())


class Noting(ProducerInterceptor):
    """Notes every call."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int, bool]] = []
        self.closed = 0

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record._replace(value=f"{record.value}!", headers=(*record.headers, ("seen", b"1")))

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        self.seen.append((metadata.partition, metadata.offset, error is None))

    def close(self) -> None:
        self.closed += 1


class Failing(ProducerInterceptor):
    """Raises an error in every method."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise ValueError("on_send")

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        raise ValueError("on_acknowledgement")

    def close(self) -> None:
        raise ValueError("close")


class Forgetting(ProducerInterceptor):
    """Has no return statement."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:  # type: ignore[empty-body]
        pass


def test_interceptors_see_and_change_records_and_cannot_do_harm(fakes: Any, caplog: pytest.LogCaptureFixture) -> None:
    cluster = fakes.cluster({"t": 1})
    noting = Noting()

    async def main() -> None:
        options = {"value_serializer": str.encode, "interceptors": [Failing(), noting, Forgetting()]}
        async with producer_of(cluster, max_request_size=1_000, **options) as producer:
            assert [(await producer.send_and_wait("t", text)).offset for text in "ab"] == [0, 1]
            await (await producer.send_many("t", [(None, "c", 1), (None, "d", 1)]))
            with pytest.raises(MessageTooLargeError):
                await producer.send("t", "x" * 1_000)
            cluster.faults[ApiKey.PRODUCE].append(fakes.fault(code=MessageTooLargeError.code))
            with pytest.raises(MessageTooLargeError):
                await producer.send_and_wait("t", "e")

    run_virtual(main())
    assert written(cluster) == [(None, b"a!"), (None, b"b!"), (None, b"c!"), (None, b"d!")]
    assert noting.seen == [(0, 0, True), (0, 1, True), (0, 2, True), (-1, -1, False), (0, -1, False)]
    assert noting.closed == 1
    assert {str(record.exc_info[1]) for record in caplog.records if record.exc_info} == {
        "on_send",
        "on_acknowledgement",
        "close",
        "it returned None",
    }


def test_keys_and_values_must_be_bytes_without_a_serializer(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})

    async def main() -> None:
        async with producer_of(cluster) as producer:
            for value in ("", "a", 0, []):
                with pytest.raises(TypeError, match=r"a value must be bytes, not [a-z]+: give"):
                    await producer.send("t", value)
            with pytest.raises(TypeError, match="a key must be bytes, not str: give the producer a key_serializer"):
                await producer.send("t", bytearray(b"v"), key="k")
            await producer.send_and_wait("t", memoryview(b"v"), key=bytearray(b"k"), headers=[("h", b"1")])

    run_virtual(main())
    assert written(cluster) == [(b"k", b"v")]
