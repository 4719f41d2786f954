"""Positions after the election of another leader, whose log may be shorter, in virtual time (KIP-320)."""

from __future__ import annotations

from typing import Any, Final

import pytest

from odradek.base.errors import LogTruncationError, TopicAuthorizationFailedError, UnknownTopicOrPartitionError
from odradek.base.types import TopicPartition
from odradek.client.consumer.consumer import Consumer
from odradek.client.models import OffsetAndMetadata
from odradek.client.settings import ClientSettings
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.records.v2.batch import BatchBuilder
from odradek_testkit.loop import VirtualClock, run_virtual

SETTINGS: Final = ClientSettings.of("fake:9001", auto_offset_reset="earliest", metadata_max_age_ms=1_000)
PARTITION: Final = TopicPartition("t", 0)
FENCED_EPOCH, TOPIC_DENIED, UNKNOWN_TOPIC = 74, 29, 3
VALIDATION: Final = ApiKey.OFFSET_FOR_LEADER_EPOCH


def consumer_of(cluster: Any, *topics: str, **changes: Any) -> Consumer:
    return Consumer(SETTINGS.replace(**changes), *topics, clock=VirtualClock(), connect=cluster.connect)


def write(cluster: Any, count: int, *, value: bytes = b"old") -> None:
    """Append batches of one record."""
    for _ in range(count):
        builder = BatchBuilder(limit_bytes=1 << 20)
        builder.append(None, value, timestamp_ms=0)
        cluster.logs[PARTITION].append(memoryview(builder.build()))


def elect(cluster: Any, *, end: int) -> None:
    """Make another broker the leader, whose log ends at this offset."""
    log = cluster.logs[PARTITION]
    log.leader, log.epoch = 3 - log.leader, log.epoch + 1
    log.truncate(end)


async def read(consumer: Consumer, count: int, **options: Any) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        for records in (await consumer.getmany(timeout_ms=60_000, **options)).values():
            found += [record.value or b"" for record in records]
    return found


def test_a_new_leader_with_the_same_log_is_read_on(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    write(cluster, 5)

    async def main() -> None:
        async with consumer_of(cluster, "t") as consumer:
            await read(consumer, 5)
            assert not [api for api, _ in cluster.asked if api is VALIDATION]
            elect(cluster, end=5)
            write(cluster, 2, value=b"new")
            assert await read(consumer, 2) == [b"new", b"new"]
            assert [(api, node) for api, node in cluster.asked if api is VALIDATION] == [(VALIDATION, 2)]

    run_virtual(main())


@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_after_a_truncation_reading_continues_where_the_logs_diverge(fakes: Any, policy: str) -> None:
    cluster = fakes.cluster({"t": 1})
    write(cluster, 5)

    async def main() -> None:
        async with consumer_of(cluster, "t", auto_offset_reset=policy) as consumer:
            await consumer.seek_to_beginning()
            await read(consumer, 5)
            elect(cluster, end=3)
            write(cluster, 4, value=b"new")
            assert await read(consumer, 4) == [b"new"] * 4
            assert await consumer.position(PARTITION) == 7

    run_virtual(main())


def test_without_a_policy_a_truncation_is_an_error_until_the_application_seeks(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    write(cluster, 5)

    async def main() -> None:
        async with consumer_of(cluster, "t", auto_offset_reset="none") as consumer:
            await consumer.seek_to_beginning()
            await read(consumer, 5)
            elect(cluster, end=3)
            write(cluster, 4, value=b"new")
            for _ in range(2):
                with pytest.raises(LogTruncationError, match="from offset 3 on") as raised:
                    await read(consumer, 1)
                assert (raised.value.position, raised.value.divergent_offset) == (5, 3)
            consumer.seek(PARTITION, 3)
            assert await read(consumer, 4) == [b"new"] * 4

    run_virtual(main())


def test_records_that_were_fetched_but_not_returned_are_fetched_again(fakes: Any) -> None:
    """Of five fetched records, the application gets two. The next leader has only three."""
    cluster = fakes.cluster({"t": 1})
    write(cluster, 5)

    async def main() -> None:
        async with consumer_of(cluster, "t", auto_offset_reset="none") as consumer:
            await consumer.seek_to_beginning()
            assert await read(consumer, 2, max_records=2) == [b"old", b"old"]
            elect(cluster, end=3)
            write(cluster, 2, value=b"new")
            await VirtualClock().sleep_ms(3_000)
            assert await read(consumer, 3) == [b"old", b"new", b"new"]

    run_virtual(main())


def test_a_truncated_log_without_older_epochs_starts_over(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    cluster.logs[PARTITION].epoch = 4
    write(cluster, 5)

    async def main() -> None:
        async with consumer_of(cluster, "t") as consumer:
            await read(consumer, 5)
            elect(cluster, end=0)
            write(cluster, 7, value=b"new")
            assert await read(consumer, 7) == [b"new"] * 7

    run_virtual(main())


def test_a_failed_validation_is_repeated_and_a_final_error_raised(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    write(cluster, 5)
    faults = [fakes.fault(code=FENCED_EPOCH), fakes.fault(lose_request=True), fakes.fault(code=TOPIC_DENIED)]
    cluster.faults[VALIDATION].extend(faults)

    async def main() -> None:
        async with consumer_of(cluster, "t") as consumer:
            await read(consumer, 5)
            elect(cluster, end=5)
            write(cluster, 1, value=b"new")
            with pytest.raises(TopicAuthorizationFailedError):
                await read(consumer, 1)
            assert await read(consumer, 1) == [b"new"]

    run_virtual(main())
    assert not cluster.faults[VALIDATION]


def test_a_fetch_that_tells_of_a_truncation_needs_no_other_request(fakes: Any) -> None:
    """The consumer does not know yet that the broker became the leader again."""
    cluster = fakes.cluster({"t": 1})
    write(cluster, 5)

    async def main() -> None:
        async with consumer_of(cluster, "t", metadata_max_age_ms=300_000) as consumer:
            await read(consumer, 5)
            cluster.logs[PARTITION].epoch += 1
            cluster.logs[PARTITION].truncate(3)
            write(cluster, 1, value=b"new")
            assert await read(consumer, 1) == [b"new"]
            assert await consumer.position(PARTITION) == 4

    run_virtual(main())
    assert not [api for api, _ in cluster.asked if api is VALIDATION]


def test_commits_have_the_leader_epoch_and_the_next_consumer_checks_it(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    write(cluster, 2)
    elect(cluster, end=2)
    write(cluster, 3)
    committed: list[tuple[int, int]] = []

    def commit(request: Any) -> Message:
        (row,) = request.topics[0].partitions
        committed.append((row.committed_offset, row.committed_leader_epoch))
        rows = [{"partition_index": 0, "error_code": 0}]
        return {"topics": [{"name": "t", "partitions": rows}]}

    def fetch(_request: Any) -> Message:
        offset, epoch = committed[-1] if committed else (-1, -1)
        row = {
            "partition_index": 0,
            "committed_offset": offset,
            "committed_leader_epoch": epoch,
            "metadata": "",
            "error_code": 0,
        }
        return {"groups": [{"group_id": "g", "topics": [{"name": "t", "partitions": [row]}], "error_code": 0}]}

    cluster.answers[ApiKey.OFFSET_COMMIT] = commit
    cluster.answers[ApiKey.OFFSET_FETCH] = fetch

    async def main() -> None:
        settings = {"group_id": "g", "enable_auto_commit": False, "auto_offset_reset": "none"}
        async with consumer_of(cluster, **settings) as consumer:
            consumer.assign([PARTITION])
            await consumer.seek_to_beginning()
            await read(consumer, 1, max_records=1)
            await consumer.commit()
            await read(consumer, 4)
            await consumer.commit()
            assert committed == [(1, 0), (5, 1)]
        elect(cluster, end=4)
        async with consumer_of(cluster, **settings) as consumer:
            consumer.assign([PARTITION])
            with pytest.raises(LogTruncationError, match="position is 5"):
                await read(consumer, 1)
            consumer.seek(PARTITION, OffsetAndMetadata(4, leader_epoch=1))
            write(cluster, 1, value=b"new")
            assert await read(consumer, 1) == [b"new"]

    run_virtual(main())


def test_a_commit_waits_until_the_coordinator_knows_the_topic(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    write(cluster, 1)
    codes = [UNKNOWN_TOPIC, UNKNOWN_TOPIC, 0]

    def commit(_request: Any) -> Message:
        row = {"partition_index": 0, "error_code": codes.pop(0) if codes else UNKNOWN_TOPIC}
        return {"topics": [{"name": "t", "partitions": [row]}]}

    cluster.answers[ApiKey.OFFSET_COMMIT] = commit

    async def main() -> None:
        async with consumer_of(cluster, group_id="g", enable_auto_commit=False) as consumer:
            consumer.assign([PARTITION])
            await consumer.seek_to_beginning()
            await read(consumer, 1)
            await consumer.commit()
            assert codes == []
            with pytest.raises(UnknownTopicOrPartitionError):
                await consumer.commit()

    run_virtual(main())
