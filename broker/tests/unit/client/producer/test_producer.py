"""The producer with an in-memory cluster, in virtual time: order, retries, duplicates, buffer memory and close."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.base.errors import (
    ConfigError,
    MessageTooLargeError,
    NetworkError,
    NotEnoughReplicasError,
    OutOfOrderSequenceError,
    RequestTimedOutError,
    UnknownProducerIdError,
    UnknownTopicOrPartitionError,
)
from odradek.base.types import TopicPartition
from odradek.client.producer.producer import Producer
from odradek.client.settings import ClientSettings
from odradek.protocol.apis import ApiKey
from odradek_testkit.loop import VirtualClock, run_virtual

SETTINGS = ClientSettings.of("fake:9001", batch_size=200, delivery_timeout_ms=60_000, request_timeout_ms=1_000)
PARTITION = TopicPartition("t", 0)


def producer_of(cluster: Any, **changes: Any) -> Producer:
    return Producer(SETTINGS.replace(**changes), clock=VirtualClock(), connect=cluster.connect)


async def send_all(producer: Producer, count: int) -> list[Any]:
    sent = [await producer.send("t", b"%d" % number, partition=0) for number in range(count)]
    return await asyncio.gather(*sent, return_exceptions=True)


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


@pytest.mark.parametrize("idempotent", [True, False])
def test_records_get_their_offsets_in_order(fakes: Any, idempotent: bool) -> None:
    cluster = fakes.cluster({"t": 2})

    async def main() -> None:
        async with producer_of(cluster, enable_idempotence=idempotent) as producer:
            results = await send_all(producer, 100)
            assert [result.offset for result in results] == list(range(100))

    run_virtual(main())
    assert cluster.logs[PARTITION].values() == numbers(100)
    assert cluster.open_links == 0


FAULTS = [
    pytest.param({"lose_request": True}, id="request lost"),
    pytest.param({"lose_answer": True}, id="response lost"),
    pytest.param({"code": NotEnoughReplicasError.code}, id="retriable code"),
    pytest.param({"code": OutOfOrderSequenceError.code}, id="gap reported"),
    pytest.param({"code": UnknownProducerIdError.code}, id="producer unknown"),
]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("place", [0, 1, 2, 4])
def test_a_fault_neither_loses_nor_duplicates_nor_reorders_records(
    fakes: Any, fault: dict[str, Any], place: int
) -> None:
    cluster = fakes.cluster({"t": 1})
    cluster.faults[ApiKey.PRODUCE].extend([fakes.fault()] * place + [fakes.fault(**fault)])

    async def main() -> None:
        async with producer_of(cluster) as producer:
            assert [result.offset for result in await send_all(producer, 200)] == list(range(200))

    run_virtual(main())
    assert cluster.logs[PARTITION].values() == numbers(200)


# Without "gap reported": after a lost response, a correct broker does not report a gap that does not exist.
fault_lists = st.lists(
    st.sampled_from(
        [
            {},
            {"lose_request": True},
            {"lose_answer": True},
            {"code": NotEnoughReplicasError.code},
            {"code": MessageTooLargeError.code},
        ]
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(faults=fault_lists, moves=st.lists(st.integers(1, 20), max_size=3))
def test_any_sequence_of_faults_keeps_every_record_once_and_in_order(
    faults: list[dict[str, Any]], moves: list[int]
) -> None:
    # Hypothesis does not accept function-scoped fixtures, so `_take_kit` stores the kit in the module.
    fakes = _kit
    cluster = fakes.cluster({"t": 1})
    cluster.faults[ApiKey.PRODUCE].extend(fakes.fault(**fault) for fault in faults)

    async def move_leader(clock: VirtualClock) -> None:
        for delay in moves:
            await clock.sleep_ms(delay)
            log = cluster.logs[PARTITION]
            log.leader, log.epoch = 3 - log.leader, log.epoch + 1

    async def main() -> list[Any]:
        async with producer_of(cluster) as producer:
            moving = asyncio.create_task(move_leader(VirtualClock()))
            results = await send_all(producer, 150)
            await moving
            return results

    results = run_virtual(main())
    kept = [int(value) for value in cluster.logs[PARTITION].values()]
    assert kept == sorted(set(kept))
    for number, result in enumerate(results):
        if not isinstance(result, MessageTooLargeError):
            assert kept[result.offset] == number


@pytest.fixture(autouse=True)
def _take_kit(fakes: Any) -> None:
    global _kit
    _kit = fakes


_kit: Any = None


def test_a_batch_is_retried_as_soon_as_a_new_leader_is_known(fakes: Any) -> None:
    """While the leader is down, the backoff grows to seconds, but the producer refreshes the metadata continuously."""
    cluster = fakes.cluster({"t": 1})
    log = cluster.logs[PARTITION]

    async def main() -> float:
        clock = VirtualClock()
        async with producer_of(cluster, retry_backoff_max_ms=60_000) as producer:
            await send_all(producer, 1)
            cluster.down.add(log.leader)
            sent = await producer.send("t", b"late", partition=0)
            await clock.sleep_ms(4_000)
            log.leader, log.epoch = 2, 1
            moved_ms = clock.monotonic_ms()
            assert (await sent).offset == 1
            return clock.monotonic_ms() - moved_ms

    assert run_virtual(main()) < 200
    assert cluster.logs[PARTITION].values() == [b"0", b"late"]


def test_too_few_replicas_do_not_cause_metadata_requests(fakes: Any) -> None:
    """While a batch waits for its retry, the producer does not refresh the metadata continuously."""
    cluster = fakes.cluster({"t": 1})
    refusals = 6

    async def main() -> int:
        async with producer_of(cluster, retry_backoff_max_ms=60_000) as producer:
            await send_all(producer, 1)
            before = [api for api, _ in cluster.asked].count(ApiKey.METADATA)
            cluster.faults[ApiKey.PRODUCE].extend([fakes.fault(code=NotEnoughReplicasError.code)] * refusals)
            await send_all(producer, 1)
            return [api for api, _ in cluster.asked].count(ApiKey.METADATA) - before

    assert 0 < run_virtual(main()) <= refusals


def test_a_rejected_batch_does_not_affect_others(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    cluster.faults[ApiKey.PRODUCE].extend([fakes.fault(), fakes.fault(code=MessageTooLargeError.code)])

    async def main() -> None:
        async with producer_of(cluster, batch_size=1) as producer:
            return await send_all(producer, 20)

    results = run_virtual(main())
    failed = [number for number, result in enumerate(results) if isinstance(result, Exception)]
    assert len(failed) == 1
    assert isinstance(results[failed[0]], MessageTooLargeError)
    assert cluster.logs[PARTITION].values() == [value for value in numbers(20) if value != b"%d" % failed[0]]


def test_delivery_times_out(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})

    async def main() -> None:
        async with producer_of(cluster, delivery_timeout_ms=5_000) as producer:
            await producer.partitions_for("t")
            cluster.down = {1, 2}
            clock = VirtualClock()
            begun = clock.monotonic_ms()
            sent = await producer.send("t", b"v", partition=0)
            with pytest.raises((RequestTimedOutError, NetworkError)):
                await sent
            assert 5_000 <= clock.monotonic_ms() - begun <= 6_100

    run_virtual(main())


def test_send_waits_for_buffer_memory_and_times_out(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})

    async def main() -> None:
        async with producer_of(cluster, buffer_memory=2_000, max_block_ms=300, batch_size=500) as producer:
            await producer.partitions_for("t")
            cluster.held = asyncio.Event()
            with pytest.raises(RequestTimedOutError):
                for _ in range(100):
                    await producer.send("t", b"x" * 100, partition=0)
            cluster.held.set()
            await (await producer.send("t", b"x" * 100, partition=0))

    run_virtual(main())


def test_send_many_waits_for_buffer_memory_and_returns_batches(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 3})

    async def main() -> None:
        async with producer_of(cluster, buffer_memory=300_000, batch_size=1_000) as producer:
            records = [(b"%d" % (number % 7), b"%d" % number, 1_000 + number) for number in range(10_000)]
            delivered = await (await producer.send_many("t", records))
            assert delivered.records == 10_000
            assert sum(batch.record_count for batch in delivered.batches) == 10_000
            assert await (await producer.send_many("t", [])) == (0, ())

    run_virtual(main())
    found = [log.values() for log in cluster.logs.values()]
    assert sorted(value for values in found for value in values) == sorted(numbers(10_000))
    for values in found:
        assert values == sorted(values, key=int)


def test_invalid_calls_raise(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})

    async def main() -> None:
        producer = producer_of(cluster, max_request_size=1_000, max_block_ms=200)
        async with producer:
            with pytest.raises(MessageTooLargeError):
                await producer.send("t", b"x" * 1_000)
            with pytest.raises(MessageTooLargeError):
                await producer.send_many("t", [(None, b"x" * 1_000, 0)])
            with pytest.raises(ConfigError):
                await producer.send("t", b"x", partition=1)
            with pytest.raises(UnknownTopicOrPartitionError):
                await producer.send("missing", b"x")
        await producer.close()
        with pytest.raises(NetworkError):
            await producer.send("t", b"x")

    run_virtual(main())


def test_linger_collects_records_in_one_batch(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})

    async def main() -> None:
        clock = VirtualClock()
        async with producer_of(cluster, linger_ms=500, batch_size=100_000) as producer:
            await producer.send_and_wait("t", b"first", partition=0)
            begun = clock.monotonic_ms()
            sent = []
            for number in range(10):
                sent.append(await producer.send("t", b"%d" % number, partition=0))
                await clock.sleep_ms(10)
            await asyncio.gather(*sent)
            assert 500 <= clock.monotonic_ms() - begun <= 520

    run_virtual(main())
    assert len(cluster.logs[PARTITION].batches) == 2


def test_flush_does_not_wait_for_linger(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})

    async def main() -> None:
        clock = VirtualClock()
        async with producer_of(cluster, linger_ms=10_000) as producer:
            begun = clock.monotonic_ms()
            sent = await producer.send("t", b"v", partition=0)
            await producer.flush()
            assert sent.done()
            assert clock.monotonic_ms() - begun < 100
            await producer.flush()

    run_virtual(main())


@pytest.mark.parametrize("turns", range(12))
@pytest.mark.parametrize("what", ["flush", "close", "send_many"])
def test_cancelled_calls_leave_no_connection_open(fakes: Any, what: str, turns: int) -> None:
    cluster = fakes.cluster({"t": 1})

    async def main() -> None:
        producer = producer_of(cluster, buffer_memory=1_500, batch_size=300)
        await producer.start()
        sent = [await producer.send("t", b"%d" % number, partition=0) for number in range(10)]
        records = [(None, b"%d" % number, 0) for number in range(5_000)]
        work = {"flush": producer.flush, "close": producer.close}.get(what)
        task = asyncio.ensure_future(work() if work else producer.send_many("t", records))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await producer.close()
        await producer.close()
        results = await asyncio.gather(*sent, return_exceptions=True)
        assert all(result.__class__.__name__ in ("RecordMetadata", "NetworkError") for result in results)

    run_virtual(main())
    assert cluster.open_links == 0
    values = cluster.logs[PARTITION].values()
    assert len(values) == len(set(values[:10])) + len(values[10:])
