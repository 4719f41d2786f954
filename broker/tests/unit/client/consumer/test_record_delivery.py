"""The records that a consumer returns, with an in-memory cluster in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.base.types import TopicPartition
from odradek.client.consumer.consumer import Consumer
from odradek.client.extensions.interceptors import ConsumerInterceptor
from odradek.client.extensions.serializers import JsonDeserializer, RecordDeserializationError
from odradek.client.models import ConsumerRecord, OffsetAndMetadata
from odradek.client.settings import ClientSettings
from odradek.protocol.apis import ApiKey
from odradek.records.v2.batch import BatchBuilder, TimestampType
from odradek_testkit.loop import VirtualClock, run_virtual

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def consumer_of(cluster: Any, **options: Any) -> Consumer:
    settings = ClientSettings.of("fake:9001", auto_offset_reset="earliest")
    return Consumer(settings, "t", clock=VirtualClock(), connect=cluster.connect, **options)


def append(cluster: Any, *records: tuple[bytes | None, bytes | None], partition: TopicPartition = FIRST) -> None:
    """Append a batch of records, each with a header."""
    builder = BatchBuilder(limit_bytes=1 << 20)
    for key, value in records:
        builder.append(key, value, timestamp_ms=7, headers=(("h", b"1"),))
    cluster.logs[partition].append(memoryview(builder.build()))


def test_getmany_and_getone_return_the_same_type(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    append(cluster, (b"k", b"v"), (None, None))

    async def main() -> None:
        async with consumer_of(cluster) as consumer:
            found = await consumer.getmany(timeout_ms=1_000)
            consumer.seek(FIRST, 0)
            again = [await consumer.getone(), await consumer.getone()]
        headers = (("h", b"1"),)
        assert found == {FIRST: again}
        assert again == [
            ConsumerRecord("t", 0, 0, 7, TimestampType.CREATE_TIME, b"k", b"v", headers),
            ConsumerRecord("t", 0, 1, 7, TimestampType.CREATE_TIME, None, None, headers),
        ]
        assert [type(record) for record in found[FIRST]] == [ConsumerRecord, ConsumerRecord]

    run_virtual(main())


def test_deserializers_convert_keys_and_values(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    append(cluster, (b"1", b'{"a":1}'), (None, None))

    async def main() -> None:
        async with consumer_of(cluster, key_deserializer=int, value_deserializer=JsonDeserializer()) as consumer:
            found = await consumer.getmany(timeout_ms=1_000)
            assert [(record.key, record.value) for record in found[FIRST]] == [(1, {"a": 1}), (None, None)]
            consumer.seek(FIRST, 0)
            assert (await consumer.getone()).value == {"a": 1}
            consumer.seek(FIRST, 0)
            (fetch,) = await consumer.getmany_raw(timeout_ms=1_000)
            assert fetch.next_offset == 2

    run_virtual(main())


def test_a_record_that_cannot_be_deserialized_stops_its_partition_until_a_seek(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 2})
    append(cluster, (b"0", b"0"), (b"1", b"one"), (b"2", b"2"))
    append(cluster, (b"0", b"5"), partition=SECOND)

    async def main() -> None:
        async with consumer_of(cluster, value_deserializer=int) as consumer:
            found: dict[TopicPartition, list[int]] = {}
            with pytest.raises(RecordDeserializationError, match="at offset 1 of t-0: ValueError") as raised:
                while True:
                    for partition, records in (await consumer.getmany(timeout_ms=1_000)).items():
                        found.setdefault(partition, []).extend(record.value for record in records)
            assert found == {FIRST: [0], SECOND: [5]}
            error = raised.value
            assert (error.topic_partition, error.offset, error.origin) == (FIRST, 1, "value")
            assert (error.record.key, error.record.value) == (b"1", b"one")
            assert isinstance(error.__cause__, ValueError)
            assert await consumer.position(FIRST) == 1
            for _ in range(2):
                with pytest.raises(RecordDeserializationError, match="at offset 1 "):
                    await consumer.getmany(timeout_ms=1_000)
            consumer.seek(error.topic_partition, error.offset + 1)
            assert (await consumer.getone()).value == 2

    run_virtual(main())


def test_an_unreadable_key_is_named(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    append(cluster, (b"x", b"1"))

    async def main() -> None:
        async with consumer_of(cluster, key_deserializer=int, value_deserializer=int) as consumer:
            with pytest.raises(RecordDeserializationError, match="the key_deserializer failed") as raised:
                await consumer.getone()
            assert raised.value.origin == "key"

    run_virtual(main())


class Dropping(ConsumerInterceptor):
    """Drops the records with an odd value, and notes every call."""

    def __init__(self) -> None:
        self.committed: list[Any] = []
        self.closed = 0

    def on_consume(self, records: Any) -> Any:
        return {partition: [each for each in found if each.value % 2 == 0] for partition, found in records.items()}

    def on_commit(self, offsets: Any) -> None:
        self.committed.append(offsets)

    def close(self) -> None:
        self.closed += 1


class Breaking(ConsumerInterceptor):
    """Raises an error in every method."""

    def on_consume(self, records: Any) -> Any:
        raise ValueError("on_consume")

    def on_commit(self, offsets: Any) -> None:
        raise ValueError("on_commit")

    def close(self) -> None:
        raise ValueError("close")


def test_interceptors_see_and_change_records_and_cannot_do_harm(fakes: Any, caplog: pytest.LogCaptureFixture) -> None:
    cluster = fakes.cluster({"t": 1})
    append(cluster, (None, b"1"), (None, b"2"), (None, b"3"))
    dropping = Dropping()

    async def main() -> None:
        consumer = consumer_of(
            cluster, value_deserializer=int, interceptors=[Breaking(), dropping, ConsumerInterceptor()]
        )
        async with consumer:
            found = await consumer.getmany(timeout_ms=1_000)
            assert [record.value for record in found[FIRST]] == [2]
            assert await consumer.position(FIRST) == 3
            consumer.seek(FIRST, 0)
            assert (await consumer.getone()).value == 2

    run_virtual(main())
    assert dropping.closed == 1
    assert {str(record.exc_info[1]) for record in caplog.records if record.exc_info} == {"on_consume", "close"}


def test_interceptors_see_commits(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    cluster.answers[ApiKey.OFFSET_COMMIT] = lambda request: {
        "topics": [{"name": "t", "partitions": [{"partition_index": 0, "error_code": 0}]}]
    }
    dropping = Dropping()

    async def main() -> None:
        settings = ClientSettings.of("fake:9001", group_id="g", enable_auto_commit=False)
        interceptors = [Breaking(), dropping]
        async with Consumer(
            settings, interceptors=interceptors, clock=VirtualClock(), connect=cluster.connect
        ) as consumer:
            consumer.assign([FIRST])
            await consumer.commit({FIRST: 4})

    run_virtual(main())
    assert dropping.committed == [{FIRST: OffsetAndMetadata(4)}]
