"""The replica manager on real logs: append and fetch rules, roles, ISR changes, offline logs, checkpoints."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from odradek.base.errors import (
    IneligibleReplicaError,
    InvalidUpdateVersionError,
    NetworkError,
    StorageError,
)
from odradek.base.types import TopicPartition
from odradek.cluster import AnnouncedBroker, ClusterImage
from odradek.records.v2.batch import BatchBuilder
from odradek.replication.isr import Phase
from odradek.replication.replica_manager import ReplicaManager
from odradek.replication.replica_requests import AppendRequest, FetchParams, FetchResult
from odradek.replication.roles import StopReplica
from odradek.replication.sessions.fetch_session import FetchPartition
from odradek_testkit.loop import VirtualClock
from odradek_testkit.replicas import LED, REPLICATED, TOPIC_ID, MemoryBroker, assume, record_set

TP, OTHER, ELSEWHERE = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("elsewhere", 0)
Play = Callable[..., None]


class Answers(list[Any]):
    """Collects answers; exactly one is expected for each request."""

    @property
    def only(self) -> Any:
        assert len(self) == 1
        return self[0]


def numbered(*values: bytes) -> bytes:
    """Return a batch of an idempotent producer."""
    builder = BatchBuilder(limit_bytes=1 << 20)
    for value in values:
        builder.append(None, value, timestamp_ms=1_700_000_000_000)
    return bytes(builder.build(producer_id=7, producer_epoch=0, base_sequence=0))


def append(
    replicas: ReplicaManager, *entries: tuple[TopicPartition, memoryview], acks: int = 1, timeout_ms: int = 1000
) -> Answers:
    answers = Answers()
    replicas.append(AppendRequest(acks, timeout_ms, list(entries)), answers.append)
    return answers


def fetch(
    replicas: ReplicaManager,
    *entries: FetchPartition,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    replica_id: int = -1,
    **options: Any,
) -> Answers:
    answers = Answers()
    params = FetchParams(max_wait_ms, min_bytes, max_bytes, replica_id, **options)
    replicas.fetch(params, entries, answers.append)
    return answers


def want(offset: int, tp: TopicPartition = TP, max_bytes: int = 1 << 20, **options: Any) -> FetchPartition:
    return FetchPartition(tp.topic, tp.partition, offset, max_bytes, **options)


def loaded(result: FetchResult) -> bytes:
    return b"" if result.records is None else result.records.load()


# Append


def test_leader_acks_answer_at_once_and_a_single_replica_commits(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker)
        for acks, first in ((1, 0), (0, 2), (-1, 4)):
            records = record_set(b"a", b"b")
            (result,) = append(broker.replicas, (TP, records), acks=acks).only
            assert (result.topic_partition, result.error_code, result.error_message) == (TP, 0, None)
            assert (result.first_offset, result.last_offset) == (first, first + 1)
            assert (result.log_start_offset, result.record_count, result.size_bytes) == (0, 2, len(records))
        assert broker.partition(TP).high_watermark == 6
        assert broker.replicas.produce_purgatory.size == 0

    play(scenario)


def test_each_entry_has_its_own_outcome_in_order(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker)
        assume(broker, replace(LED, leader=2, replicas=(1, 2)), OTHER)
        broken = record_set(b"value")
        broken[-1] ^= 1
        results = append(
            broker.replicas,
            (ELSEWHERE, record_set(b"a")),
            (OTHER, record_set(b"a")),
            (TP, broken),
            (TP, record_set(b"x" * 6000)),
            (TP, record_set(b"fine")),
        ).only
        assert [result.error_code for result in results] == [3, 6, 2, 10, 0]
        assert (results[1].leader_id, results[1].leader_epoch) == (2, 5)
        assert results[2].error_message
        assert results[4].first_offset == 0

    play(scenario)


def test_unknown_acks_write_nothing(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker)
        for acks in (2, -2):
            (result,) = append(broker.replicas, (TP, record_set(b"a")), acks=acks).only
            assert result.error_code == 21
        assert broker.partition(TP).log.log_end_offset == 0

    play(scenario)


def test_acks_all_needs_the_minimum_and_acks_one_does_not(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker, replace(REPLICATED, isr=(1,)))
        assert append(broker.replicas, (TP, record_set(b"a")), acks=-1).only[0].error_code == 19
        assert append(broker.replicas, (TP, record_set(b"a")), acks=1).only[0].error_code == 0
        assert broker.partition(TP).log.log_end_offset == 1

    play(scenario)


def test_acks_all_waits_for_a_followers_fetch_and_no_longer(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker, REPLICATED)
        waiting = append(broker.replicas, (TP, record_set(b"a", b"b")), acks=-1)
        fetch(broker.replicas, want(1), replica_id=2)
        assert waiting == []
        fetch(broker.replicas, want(2), replica_id=2)
        assert [result.error_code for result in waiting.only] == [0]
        await clock.sleep_ms(2000)
        assert len(waiting) == 1

    play(scenario)


def test_acks_all_times_out_by_partition(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker, REPLICATED, TP, OTHER)
        waiting = append(broker.replicas, (TP, record_set(b"a")), (OTHER, record_set(b"b")), acks=-1)
        fetch(broker.replicas, want(1, OTHER), replica_id=2)
        await clock.sleep_ms(1001)
        assert [(result.error_code, result.first_offset) for result in waiting.only] == [(7, 0), (0, 0)]

    play(scenario)


def test_lost_leadership_answers_waiting_producers(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker, REPLICATED)
        waiting = append(broker.replicas, (TP, record_set(b"a")), acks=-1)
        assume(broker, replace(REPLICATED, leader=2, leader_epoch=6))
        assert waiting.only[0].error_code == 6

    play(scenario)


# Fetch


def test_consumers_read_what_is_committed_and_followers_everything(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker, REPLICATED)
        append(broker.replicas, (TP, record_set(b"a")))
        fetch(broker.replicas, want(1), replica_id=2)
        append(broker.replicas, (TP, record_set(b"b")))
        (consumer,) = fetch(broker.replicas, want(0)).only
        (follower,) = fetch(broker.replicas, want(0), replica_id=2).only
        assert loaded(follower) == broker.content(TP)
        assert loaded(consumer) == loaded(follower)[: len(loaded(consumer))]
        assert 0 < len(loaded(consumer)) < len(loaded(follower))
        assert (consumer.high_watermark, consumer.last_stable_offset, consumer.log_start_offset) == (1, 1, 0)
        (empty,) = fetch(broker.replicas, want(1)).only
        assert empty == FetchResult(0, 1, 1, 0)

    play(scenario)


@pytest.mark.parametrize(
    ("entry", "options", "code"),
    [
        (want(1, ELSEWHERE), {}, 3),
        (want(0, OTHER), {}, 6),
        (want(0, OTHER), {"leader_only": False}, 0),
        (want(0, current_leader_epoch=4), {}, 74),
        (want(0, current_leader_epoch=6), {}, 75),
        (want(0, current_leader_epoch=5), {}, 0),
        (want(2), {}, 1),
        (want(-1), {}, 1),
        (want(0, topic_id=UUID(int=1)), {}, 103),
        (want(0, topic_id=TOPIC_ID), {}, 0),
        (want(1, last_fetched_epoch=5), {}, 0),
        (want(1, last_fetched_epoch=7), {}, 1),
    ],
)
def test_refused_reads(play: Play, entry: FetchPartition, options: dict[str, bool], code: int) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker)
        assume(broker, replace(LED, leader=2, replicas=(1, 2)), OTHER)
        append(broker.replicas, (TP, record_set(b"a")))
        (result,) = fetch(broker.replicas, entry, max_wait_ms=0 if code == 0 else 10_000, **options).only
        assert result.error_code == code
        if code in (6, 74):
            assert result.leader_id in (1, 2)

    play(scenario)


def test_a_stranger_is_no_follower(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker, REPLICATED)
        assert fetch(broker.replicas, want(0), replica_id=9).only[0].error_code == 6

    play(scenario)


def test_divergence_is_returned_at_once_and_does_not_count_as_progress(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker, REPLICATED)
        append(broker.replicas, (TP, record_set(b"a", b"b")))
        assume(broker, replace(REPLICATED, leader_epoch=8))
        append(broker.replicas, (TP, record_set(b"c", b"d")))
        (result,) = fetch(broker.replicas, want(3, last_fetched_epoch=6), replica_id=2, max_wait_ms=10_000).only
        assert (result.error_code, result.diverging_epoch, result.records) == (0, (5, 2), None)
        assert broker.partition(TP).high_watermark == 0

    play(scenario)


def test_a_fetch_waits_for_enough_bytes(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker)
        size = len(record_set(b"a"))
        waiting = fetch(broker.replicas, want(0), max_wait_ms=5000, min_bytes=size + 1)
        append(broker.replicas, (TP, record_set(b"a")))
        assert waiting == []
        append(broker.replicas, (TP, record_set(b"b")))
        assert len(loaded(waiting.only[0])) == 2 * size

    play(scenario)


@pytest.mark.parametrize("replica_id", [-1, 2], ids=["consumer", "follower"])
def test_a_fetch_of_a_sealed_segment_does_not_wait(play: Play, replica_id: int) -> None:
    """A sealed segment cannot grow, so a fetch that reads there is answered at once, as in Kafka."""

    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker, LED if replica_id < 0 else REPLICATED)
        size = len(record_set(b"x" * 100))
        for _ in range(2):
            append(broker.replicas, (TP, record_set(b"x" * 100)))
        partition = broker.partition(TP)
        assert [segment.base_offset for segment in partition.log.segments] == [0, 1], "each batch has a segment"
        options: dict[str, Any] = {"max_wait_ms": 5000, "min_bytes": 10 * size, "replica_id": replica_id}
        assert len(loaded(fetch(broker.replicas, want(0), **options).only[0])) == size
        waiting = fetch(broker.replicas, want(1), **options)
        assert waiting == [], "the active segment may still grow"
        append(broker.replicas, (TP, record_set(b"x" * 100)))
        assert len(loaded(waiting.only[0])) >= size, "and is sealed by the next one"

    play(scenario, {"log.segment.bytes": "200"})


def test_the_minimum_of_a_fetch_is_limited_by_the_maximum(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker)
        limit = broker.config.fetch_max_bytes
        append(broker.replicas, (TP, record_set(b"x" * 1000)))
        assert fetch(broker.replicas, want(0), max_wait_ms=500, min_bytes=2 * limit, max_bytes=limit) == []
        waiting = fetch(broker.replicas, want(0), max_wait_ms=500, min_bytes=2 * limit, max_bytes=2 * limit)
        assert loaded(waiting.only[0])

    play(scenario, {"fetch.max.bytes": "1024"})


def test_a_fetch_waits_at_most_for_its_wait_time(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker)
        waiting = fetch(broker.replicas, want(0), max_wait_ms=500)
        await clock.sleep_ms(499)
        assert waiting == []
        await clock.sleep_ms(3)
        assert waiting.only == [FetchResult(0, 0, 0, 0)]

    play(scenario)


def test_a_waiting_consumer_is_answered_when_followers_commit(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker, REPLICATED)
        waiting = fetch(broker.replicas, want(0), max_wait_ms=5000)
        follower = fetch(broker.replicas, want(0), max_wait_ms=5000, replica_id=2)
        append(broker.replicas, (TP, record_set(b"a")))
        assert loaded(follower.only[0])
        assert waiting == []
        fetch(broker.replicas, want(1), max_wait_ms=5000, replica_id=2)
        assert loaded(waiting.only[0])

    play(scenario)


@pytest.mark.parametrize(
    "event",
    [
        lambda broker: assume(broker, replace(LED, leader=2, leader_epoch=6, replicas=(1, 2))),
        lambda broker: assume(broker, replace(LED, leader_epoch=6)),
        lambda broker: broker.replicas.take_offline(TP),
        lambda broker: broker.replicas.roles.stop([StopReplica(TP, 6, delete=True)]),
    ],
    ids=["follower", "next-epoch", "offline", "deleted"],
)
def test_a_change_of_role_answers_waiting_fetches(play: Play, event: Callable[[MemoryBroker], object]) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker)
        waiting = fetch(broker.replicas, want(0, current_leader_epoch=5), max_wait_ms=60_000)
        event(broker)
        assert waiting.only[0].error_code in (3, 6, 56, 74)

    play(scenario)


def test_bounds_hold_over_all_partitions_but_one_batch_gets_through(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker, LED, TP, OTHER)
        size = len(record_set(b"x" * 100))
        for _ in range(3):
            append(broker.replicas, (TP, record_set(b"x" * 100)), (OTHER, record_set(b"x" * 100)))

        def sizes(max_bytes: int, each: int = 1 << 20) -> list[int]:
            entries = (want(0, max_bytes=each), want(0, OTHER, max_bytes=each))
            return [len(loaded(result)) for result in fetch(broker.replicas, *entries, max_bytes=max_bytes).only]

        assert sizes(1 << 20) == [3 * size, 3 * size]
        assert sizes(1) == [size, 0]
        assert sizes(1 << 20, each=1) == [size, 0]
        assert sizes(4 * size) == [3 * size, size]
        assert sizes(0) == [size, 0]

    play(scenario)


def test_no_entries_no_wait(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assert fetch(broker.replicas, max_wait_ms=60_000).only == []

    play(scenario)


# Roles


def test_a_new_leader_notes_where_its_epoch_starts(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker)
        append(broker.replicas, (TP, record_set(b"a", b"b")))
        assume(broker, replace(LED, leader_epoch=9))
        log = broker.partition(TP).log
        assert log.latest_epoch == 9
        assert tuple(log.end_offset_for_epoch(5)) == (5, 2)

    play(scenario)


def test_stopping_replicas(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker, LED, TP, OTHER)
        append(broker.replicas, (TP, record_set(b"a")))
        codes = broker.replicas.roles.stop(
            [StopReplica(TP, 4, delete=True), StopReplica(OTHER, 5), StopReplica(ELSEWHERE, 1, delete=True)]
        )
        assert codes == {TP: 74, OTHER: 0, ELSEWHERE: 0}
        assert broker.partition(OTHER).log.log_end_offset == 0
        assert broker.replicas.roles.stop([StopReplica(TP, -2, delete=True)]) == {TP: 0}
        assert broker.logs.get(TP) is None
        assume(broker, replace(LED, controller_epoch=4))
        assert broker.partition(TP).log.log_end_offset == 0
        assert broker.partition(TP).high_watermark == 0

    play(scenario)


def test_a_failed_directory_takes_its_partitions_offline(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker, REPLICATED)
        waiting = append(broker.replicas, (TP, record_set(b"a")), acks=-1)
        broker.partition(TP).log.take_offline(StorageError("disk gone"))
        assert append(broker.replicas, (TP, record_set(b"b"))).only[0].error_code == 56
        assert waiting.only[0].error_code == 56
        assert broker.replicas.counts().offline == 1
        assert fetch(broker.replicas, want(0), max_wait_ms=60_000).only[0].error_code == 56
        assert assume(broker, replace(REPLICATED, leader_epoch=6)) == [56]
        assert broker.replicas.roles.stop([StopReplica(TP, 6)]) == {TP: 56}

    play(scenario)


def test_counts(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker, replace(REPLICATED, isr=(1,)), TP)
        assume(broker, replace(LED, leader=2, replicas=(1, 2)), OTHER)
        counts = broker.replicas.counts()
        assert (counts.partitions, counts.leaders, counts.under_replicated, counts.under_min_isr) == (2, 1, 1, 1)

    play(scenario)


# ISR changes


def test_in_sync_writes_are_repeated_reverted_or_left_pending(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        cluster = broker.cluster
        assume(broker, replace(REPLICATED, isr=(1,)))
        partition = broker.partition(TP)
        cluster.isr_refusals += [NetworkError("no controller"), NetworkError("again"), IneligibleReplicaError("no")]
        fetch(broker.replicas, want(0), replica_id=2)
        assert partition.in_sync.phase is Phase.EXPANDING
        await clock.sleep_ms(1000)
        assert cluster.isr_writes == [(1, 2)] * 3
        assert partition.in_sync.phase is Phase.COMMITTED
        assert partition.in_sync.committed == (1,)
        cluster.isr_refusals.append(InvalidUpdateVersionError("stale"))
        fetch(broker.replicas, want(0), replica_id=2)
        await clock.sleep_ms(5000)
        assert len(cluster.isr_writes) == 4
        assert partition.in_sync.phase is Phase.EXPANDING

    play(scenario)


def test_a_dead_replica_is_not_proposed(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        def announce(*alive: int) -> None:
            brokers = [AnnouncedBroker(broker_id=each, endpoints=()) for each in alive]
            broker.view.image = ClusterImage().updated(controller_id=1, brokers=brokers, partitions=())

        assume(broker, replace(REPLICATED, isr=(1,)))
        announce(1)
        fetch(broker.replicas, want(0), replica_id=2)
        assert broker.partition(TP).in_sync.phase is Phase.COMMITTED
        announce(1, 2)
        broker.cluster.isr_refusals.append(IneligibleReplicaError("no"))
        fetch(broker.replicas, want(0), replica_id=2)
        assert broker.partition(TP).in_sync.phase is Phase.EXPANDING
        await clock.sleep_ms(100)
        assert broker.cluster.isr_writes == [(1, 2)]

    play(scenario)


def test_a_new_leader_epoch_ends_the_retries(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker, replace(REPLICATED, isr=(1,)))
        broker.cluster.isr_refusals += [NetworkError("no controller")] * 100
        fetch(broker.replicas, want(0), replica_id=2)
        await clock.sleep_ms(500)
        assume(broker, replace(REPLICATED, isr=(2,), leader=2, leader_epoch=6))
        await clock.sleep_ms(2000)
        written = len(broker.cluster.isr_writes)
        await clock.sleep_ms(10_000)
        assert len(broker.cluster.isr_writes) == written

    play(scenario)


def test_a_duplicate_raises_a_delayed_high_watermark(play: Play) -> None:
    """The high watermark waited for a follower that was about to join and died; the next retry notices that."""

    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        def announce(*alive: int) -> None:
            brokers = [AnnouncedBroker(broker_id=each, endpoints=()) for each in alive]
            broker.view.image = ClusterImage().updated(controller_id=1, brokers=brokers, partitions=())

        announce(1, 2, 3)
        assume(broker, replace(REPLICATED, replicas=(1, 2, 3)))
        broker.partition(TP).remote_replica(3).fetched(0, 0, clock.monotonic_ms(), 0)  # type: ignore[union-attr]
        records = numbered(b"a")
        produced = append(broker.replicas, (TP, memoryview(bytearray(records))), acks=-1, timeout_ms=60_000)
        fetch(broker.replicas, want(1), replica_id=2)
        assert produced == []
        announce(1, 2)
        again = append(broker.replicas, (TP, memoryview(bytearray(records))), acks=-1, timeout_ms=60_000)
        assert [each.only[0].error_code for each in (produced, again)] == [0, 0]
        assert broker.partition(TP).high_watermark == 1

    play(scenario)


@pytest.mark.parametrize(("isr", "is_followed"), [((2,), False), ((2, 1), True)])
def test_a_broker_that_leaves_follows_only_where_it_is_in_sync(
    play: Play, isr: tuple[int, ...], is_followed: bool
) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        other = await broker.cluster.start_broker(2)
        broker.cluster.create(TP, (1, 2))
        broker.replicas.roles.is_leaving = True
        broker.cluster.elect(TP, 2, isr, inform=(2, 1))
        append(other.replicas, (TP, record_set(b"a")))
        await clock.sleep_ms(2_000)
        assert (broker.partition(TP).log.log_end_offset == 1) is is_followed
        assert not broker.partition(TP).is_leader

    play(scenario)


# End


def test_closing_answers_everything_once(play: Play) -> None:
    async def scenario(broker: MemoryBroker, clock: VirtualClock) -> None:
        assume(broker, REPLICATED)
        produced = append(broker.replicas, (TP, record_set(b"a")), acks=-1, timeout_ms=60_000)
        fetched = fetch(broker.replicas, want(0), max_wait_ms=60_000)
        await asyncio.gather(broker.replicas.close(), broker.replicas.close())
        assert produced.only[0].error_code == 7
        assert fetched.only[0].error_code == 0

    play(scenario)
