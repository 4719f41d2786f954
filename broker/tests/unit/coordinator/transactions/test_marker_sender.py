"""Markers reach the leaders of all partitions: moves, failures, fencing, deleted topics, batches, cancellation."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from odradek.base.errors import (
    AuthenticationError,
    InvalidProducerEpochError,
    KafkaStorageError,
    NetworkError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    RequestTimedOutError,
    TransactionCoordinatorFencedError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
    UnsupportedForMessageFormatError,
    UnsupportedVersionError,
)
from odradek.base.types import NO_BROKER, TopicPartition
from odradek.coordinator.transactions.marker_sender import PARTITIONS_PER_REQUEST, RETRY_MAX_MS, SLOW_RETRY_MS
from odradek.coordinator.transactions.transaction_values import MarkerOutcome, TransactionMarker
from odradek.protocol.keys import ApiKey
from odradek_testkit.loop import run_virtual
from odradek_testkit.senders.marker_brokers import HERE, MarkerBench, Written, ZooKeeperDownError

WRITTEN = [MarkerOutcome.WRITTEN]
FENCED = [MarkerOutcome.FENCED]
A, B, C = (TopicPartition("t", number) for number in range(3))


def virtual(test: Callable[[MarkerBench], Awaitable[None]], protocol: str = "3.9") -> None:
    async def main() -> None:
        bench = MarkerBench(protocol)
        try:
            await test(bench)
        finally:
            await bench.close()

    run_virtual(main())


def test_each_leader_gets_the_marker_with_its_partitions() -> None:
    async def scenario(bench: MarkerBench) -> None:
        bench.lead(HERE, A)
        bench.lead(1, B, C)
        bench.send(4, A, B, C)
        assert not bench.outcomes[4], "not before send returns"
        await bench.settled()
        assert bench.outcomes[4] == WRITTEN
        assert sorted(bench.requests) == [
            Written(HERE, (TransactionMarker(4, 5, True, 7, (A,)),)),
            Written(1, (TransactionMarker(4, 5, True, 7, (B, C)),)),
        ]

    virtual(scenario)


def test_a_marker_without_partitions_is_written_at_once_but_not_within_the_call() -> None:
    async def scenario(bench: MarkerBench) -> None:
        bench.send(4)
        assert not bench.outcomes[4]
        await bench.settled()
        assert bench.outcomes[4] == WRITTEN
        bench.send(5)()
        await bench.clock.sleep_ms(1)
        assert not bench.outcomes[5]

    virtual(scenario)


@pytest.mark.parametrize("broker_id", [HERE, 1])
@pytest.mark.parametrize(
    "error",
    [
        UnknownTopicOrPartitionError,
        NotLeaderOrFollowerError,
        NotEnoughReplicasError,
        NotEnoughReplicasAfterAppendError,
        RequestTimedOutError,
        KafkaStorageError,
    ],
)
def test_only_the_partition_that_failed_gets_the_marker_again(broker_id: int, error: type[NetworkError]) -> None:
    async def scenario(bench: MarkerBench) -> None:
        bench.lead(broker_id, A, B)
        bench.codes[B] = [error.code] * 3
        bench.send(4, A, B)
        await bench.settled()
        assert bench.outcomes[4] == WRITTEN
        assert [request.markers[0].partitions for request in bench.requests] == [(A, B), (B,), (B,), (B,)]
        assert bench.sender.retry_count == 3

    virtual(scenario)


@pytest.mark.parametrize("broker_id", [HERE, 1])
@pytest.mark.parametrize("error", [UnsupportedForMessageFormatError, UnsupportedVersionError])
def test_logs_without_transactions_need_no_marker(broker_id: int, error: type[UnsupportedVersionError]) -> None:
    async def scenario(bench: MarkerBench) -> None:
        bench.lead(broker_id, A)
        bench.codes[A] = [error.code]
        bench.send(4, A)
        await bench.settled()
        assert bench.outcomes[4] == WRITTEN
        assert len(bench.requests) == 1

    virtual(scenario)


@pytest.mark.parametrize("error", [InvalidProducerEpochError, TransactionCoordinatorFencedError])
def test_a_fenced_marker_is_not_sent_any_more(error: type[InvalidProducerEpochError]) -> None:
    async def scenario(bench: MarkerBench) -> None:
        bench.lead(HERE, A)
        bench.lead(1, B)
        bench.lead(2, C)
        bench.codes[A] = [NotEnoughReplicasError.code] * 1_000
        bench.codes[B] = [error.code]
        bench.gates[2].clear()
        bench.send(4, A, B, C)
        await bench.settled()
        assert bench.outcomes[4] == FENCED
        requests = len(bench.requests)
        bench.gates[2].set()
        await bench.clock.sleep_ms(60_000)
        assert bench.outcomes[4] == FENCED
        assert len(bench.requests) == requests

    virtual(scenario)


@pytest.mark.parametrize("failure", [NetworkError("a"), RequestTimedOutError("b"), OSError("c")])
def test_a_lost_connection_is_followed_by_another_attempt(failure: Exception) -> None:
    async def scenario(bench: MarkerBench) -> None:
        bench.lead(1, A)
        bench.failures[1] = [failure] * 2
        bench.send(4, A)
        await bench.settled()
        assert bench.outcomes[4] == WRITTEN
        assert len(bench.requests) == 3

    virtual(scenario)


def test_attempts_become_rarer_while_a_broker_is_down() -> None:
    async def scenario(bench: MarkerBench) -> None:
        bench.lead(1, A)
        bench.brokers.refusals[1] = NetworkError("down")
        bench.send(4, A)
        await bench.clock.sleep_ms(60_000)
        assert 50 < bench.sender.retry_count < 70
        assert not bench.outcomes[4]
        bench.lead(2, A)
        await bench.clock.sleep_ms(RETRY_MAX_MS + 1)
        assert bench.outcomes[4] == WRITTEN
        assert [request.broker_id for request in bench.requests] == [2]

    virtual(scenario)


def test_a_leader_that_moves_is_looked_up_for_each_attempt() -> None:
    async def scenario(bench: MarkerBench) -> None:
        bench.lead(1, A)
        bench.leaders[A] = 2
        bench.send(4, A)
        await bench.clock.sleep_ms(10)
        bench.lead(2, A)
        await bench.settled()
        assert [request.broker_id for request in bench.requests] == [1, 2]
        bench.lead(HERE, A)
        bench.send(5, A)
        await bench.settled()
        assert bench.written[A] == {4, 5}

    virtual(scenario)


def test_what_waits_for_a_request_in_progress_follows_a_leader_that_moves() -> None:
    async def scenario(bench: MarkerBench) -> None:
        bench.lead(1, A, B)
        bench.gates[1].clear()
        bench.send(4, A)
        await bench.clock.sleep_ms(10)
        bench.send(5, A, B)
        bench.lead(2, B)
        bench.gates[1].set()
        await bench.settled()
        assert [
            (broker_id, markers[0].producer_id, markers[0].partitions) for broker_id, markers in bench.requests
        ] == [
            (1, 4, (A,)),
            (1, 5, (A,)),
            (2, 5, (B,)),
        ]

    virtual(scenario)


@pytest.mark.parametrize("leader", [NO_BROKER, 9])
def test_a_partition_without_a_leader_waits_for_one(leader: int) -> None:
    async def scenario(bench: MarkerBench) -> None:
        bench.lead(leader, A)
        bench.send(4, A)
        assert bench.sender.unknown_destination_count == 1
        await bench.clock.sleep_ms(5_000)
        assert (bench.requests, bench.lookups) == ([], [])
        bench.lead(1, A)
        await bench.settled()
        assert bench.outcomes[4] == WRITTEN
        assert bench.sender.unknown_destination_count == 0

    virtual(scenario)


def test_a_broker_that_disappears_during_a_request_does_not_delay_the_new_leader() -> None:
    async def scenario(bench: MarkerBench) -> None:
        bench.lead(1, A)
        bench.gates[1].clear()
        bench.send(4, A)
        await bench.clock.sleep_ms(10)
        bench.brokers.announce({0: 9000, 2: 9002})
        bench.lead(2, A)
        await bench.clock.sleep_ms(3_000)
        assert bench.outcomes[4] == WRITTEN

    virtual(scenario)


# Deleted topics


def test_a_deleted_topic_needs_no_marker() -> None:
    async def scenario(bench: MarkerBench) -> None:
        bench.lead(1, A, TopicPartition("other", 0))
        bench.gates[1].clear()
        bench.send(4, A, TopicPartition("other", 0))
        await bench.clock.sleep_ms(10)
        bench.delete("t")
        bench.gates[1].set()
        await bench.settled()
        assert bench.outcomes[4] == WRITTEN
        assert bench.written == {TopicPartition("other", 0): {4}}
        assert bench.lookups == ["t"]

    virtual(scenario)


def test_a_topic_that_is_not_in_the_metadata_yet_gets_its_markers() -> None:
    """The metadata of a broker that has just started may be incomplete."""

    async def scenario(bench: MarkerBench) -> None:
        bench.assigned["t"] = {0}
        bench.send(4, A)
        await bench.clock.sleep_ms(5_000)
        assert not bench.outcomes[4]
        assert bench.sender.unknown_destination_count == 1
        bench.lead(1, A)
        await bench.settled()
        assert bench.written == {A: {4}}

    virtual(scenario)


@pytest.mark.parametrize("failure", [ZooKeeperDownError("no answer"), ValueError("a bug")])
def test_a_topic_counts_as_deleted_only_if_zookeeper_answers(failure: Exception) -> None:
    async def scenario(bench: MarkerBench) -> None:
        bench.zookeeper_failures = [failure] * 5
        bench.send(4, A)
        await bench.settled()
        assert bench.outcomes[4] == WRITTEN
        assert len(bench.lookups) == 6

    virtual(scenario)


def test_a_topic_that_was_created_again_with_fewer_partitions() -> None:
    async def scenario(bench: MarkerBench) -> None:
        bench.lead(1, A)
        bench.send(4, A, B, C)
        await bench.settled()
        assert bench.outcomes[4] == WRITTEN
        assert bench.written == {A: {4}}

    virtual(scenario)


def test_many_markers_share_a_lookup_but_not_one_that_began_before() -> None:
    async def scenario(bench: MarkerBench) -> None:
        for producer_id in range(100):
            bench.send(producer_id, A, B)
        await bench.looking_up.wait()
        bench.send(100, A)
        await bench.settled()
        assert bench.lookups == ["t", "t"]
        assert all(bench.outcomes[producer_id] == WRITTEN for producer_id in range(101))

    virtual(scenario)


# Batches


def test_what_waits_goes_into_the_next_request() -> None:
    async def scenario(bench: MarkerBench) -> None:
        bench.lead(1, A)
        bench.lead(2, B)
        bench.gates[1].clear()
        bench.send(0, A)
        await bench.clock.sleep_ms(10)
        for producer_id in range(1, 500):
            bench.send(producer_id, A)
        bench.send(500, B)
        await bench.clock.sleep_ms(10)
        assert bench.outcomes[500] == WRITTEN, "brokers do not wait for each other"
        bench.gates[1].set()
        await bench.settled()
        numbers = [
            [marker.producer_id for marker in markers] for broker_id, markers in bench.requests if broker_id == 1
        ]
        assert numbers == [[0], list(range(1, 500))]

    virtual(scenario)


@pytest.mark.parametrize("broker_id", [HERE, 1])
def test_requests_are_limited_but_the_partitions_of_a_marker_stay_together(broker_id: int) -> None:
    async def scenario(bench: MarkerBench) -> None:
        large = [TopicPartition("large", number) for number in range(3 * PARTITIONS_PER_REQUEST)]
        bench.lead(broker_id, A, *large)
        bench.send(0, *large)
        for producer_id in range(1, 2 * PARTITIONS_PER_REQUEST + 1):
            bench.send(producer_id, A)
        await bench.settled()
        sizes = [(len(markers), sum(len(marker.partitions) for marker in markers)) for _, markers in bench.requests]
        assert sizes == [(1, len(large)), (PARTITIONS_PER_REQUEST,) * 2, (PARTITIONS_PER_REQUEST,) * 2]

    virtual(scenario)


def test_a_local_partition_that_waits_does_not_delay_the_others() -> None:
    async def scenario(bench: MarkerBench) -> None:
        bench.lead(HERE, A, B)
        bench.gates[HERE].clear()
        bench.send(4, A)
        await bench.clock.sleep_ms(10)
        bench.gates[HERE].set()
        bench.gates[HERE] = asyncio.Event()
        bench.send(5, B)
        await bench.clock.sleep_ms(10)
        assert len(bench.requests) == 2
        assert bench.outcomes[4] == WRITTEN
        bench.gates[HERE].set()
        await bench.settled()

    virtual(scenario)


def test_two_markers_of_a_producer_are_in_different_requests() -> None:
    """A response has its markers by producer id, so it could not tell them apart."""

    async def scenario(bench: MarkerBench) -> None:
        bench.lead(1, A, B)
        bench.send(4, A)
        bench.send(4, B)
        bench.send(5, A)
        await bench.settled()
        assert [[marker.producer_id for marker in markers] for _, markers in bench.requests] == [[4, 5], [4]]
        assert bench.outcomes[4] == WRITTEN * 2

    virtual(scenario)


def test_ten_thousand_transactions_of_a_broker_that_is_down() -> None:
    """The work grows with their number, not with its square: this test would take minutes."""

    async def scenario(bench: MarkerBench) -> None:
        bench.lead(1, A)
        bench.lead(2, B)
        bench.brokers.refusals[1] = NetworkError("down")
        stops = [bench.send(producer_id, A, B) for producer_id in range(10_000)]
        await bench.clock.sleep_ms(2_000)
        assert len(bench.written[B]) == 10_000
        for stop in stops[:5_000]:
            stop()
        del bench.brokers.refusals[1]
        await bench.settled()
        assert bench.written[A] == set(range(5_000, 10_000))

    virtual(scenario)


# Unexpected answers


@pytest.mark.parametrize("broker_id", [HERE, 1])
@pytest.mark.parametrize("failure", [AuthenticationError("a"), ValueError("a bug")])
def test_other_failures_are_reported_once_and_retried_slowly(
    broker_id: int, failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(bench: MarkerBench) -> None:
        bench.lead(broker_id, A)
        bench.failures[broker_id] = [failure] * 3
        bench.send(4, A)
        await bench.clock.sleep_ms(SLOW_RETRY_MS - 1)
        assert len(bench.requests) == 1
        await bench.settled()
        assert bench.outcomes[4] == WRITTEN
        assert len(bench.requests) == 4

    with caplog.at_level(logging.ERROR):
        virtual(scenario)
    assert len(caplog.records) == (3 if isinstance(failure, ValueError) else 1)


def test_unexpected_codes_are_reported_once_until_the_broker_has_recovered(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(bench: MarkerBench) -> None:
        bench.lead(1, A, B)
        bench.codes[A] = [UnknownServerError.code] * 3
        bench.send(4, A, B)
        bench.send(5, B)
        await bench.clock.sleep_ms(SLOW_RETRY_MS - 1)
        assert len(bench.requests) == 1
        await bench.settled()
        assert len(caplog.records) == 1
        bench.codes[A] = [UnknownServerError.code]
        bench.send(6, A)
        await bench.settled()
        assert len(caplog.records) == 2

    with caplog.at_level(logging.ERROR):
        virtual(scenario)


def test_an_incomplete_response_does_not_count_as_written() -> None:
    async def scenario(bench: MarkerBench) -> None:
        bench.lead(1, A)
        bench.answers = lambda answer: {"markers": []}
        bench.send(4, A)
        await bench.clock.sleep_ms(10)
        assert not bench.outcomes[4]
        bench.answers = lambda answer: answer
        await bench.settled()
        assert bench.outcomes[4] == WRITTEN

    virtual(scenario)


def test_a_broker_without_the_api_gets_the_marker_after_its_upgrade() -> None:
    async def scenario(bench: MarkerBench) -> None:
        bench.lead(1, A)
        bench.brokers.versions[1] = {ApiKey.WRITE_TXN_MARKERS: -1}
        bench.send(4, A)
        await bench.clock.sleep_ms(60_000)
        assert not bench.outcomes[4]
        bench.brokers.versions[1] = {ApiKey.WRITE_TXN_MARKERS: 0}
        await bench.settled()
        assert bench.written == {A: {4}}

    virtual(scenario)


@pytest.mark.parametrize(
    ("protocol", "supported", "used"), [("3.9", 1, 1), ("2.8-IV0", 1, 1), ("2.7", 1, 0), ("2.7", 0, 0), ("3.9", 0, 0)]
)
def test_markers_have_a_version_of_the_protocol_that_the_broker_supports(
    protocol: str, supported: int, used: int
) -> None:
    """Kafka 2.7 has only version 0."""

    async def scenario(bench: MarkerBench) -> None:
        bench.lead(1, A)
        bench.brokers.versions[1] = {ApiKey.WRITE_TXN_MARKERS: supported}
        bench.send(4, A)
        await bench.settled()
        assert bench.written == {A: {4}}
        assert bench.versions == [used]

    virtual(scenario, protocol)


def test_an_error_in_done_does_not_stop_other_markers() -> None:
    async def scenario(bench: MarkerBench) -> None:
        def fail(outcome: MarkerOutcome) -> None:
            raise ValueError("a bug")

        bench.lead(1, A)
        bench.sender.send(TransactionMarker(3, 0, False, 0, (A,)), fail)
        bench.send(4, A)
        await bench.settled()
        assert bench.outcomes[4] == WRITTEN

    virtual(scenario)


# Cancellation


def test_a_marker_that_was_stopped_is_not_sent_again() -> None:
    async def scenario(bench: MarkerBench) -> None:
        elsewhere = TopicPartition("unknown", 0)
        bench.assigned["unknown"] = {0}
        bench.lead(HERE, A)
        bench.lead(1, B)
        bench.lead(NO_BROKER, C)
        bench.codes[A] = [NotEnoughReplicasError.code] * 1_000
        bench.gates[1].clear()
        bench.send(4, B)
        await bench.clock.sleep_ms(10)
        stop = bench.send(5, A, B, C, elsewhere)
        await bench.clock.sleep_ms(5_000)
        stop()
        stop()
        assert (bench.sender.pending_count, bench.sender.paused_count) == (1, 0)
        requests = len(bench.requests)
        bench.gates[1].set()
        await bench.clock.sleep_ms(60_000)
        assert bench.outcomes == {4: WRITTEN, 5: []}
        assert len(bench.requests) == requests

    virtual(scenario)


def test_the_answer_to_a_stopped_marker_is_ignored() -> None:
    async def scenario(bench: MarkerBench) -> None:
        bench.lead(1, A)
        for code in (0, NotLeaderOrFollowerError.code, InvalidProducerEpochError.code, UnknownServerError.code):
            bench.codes[A] = [code]
            bench.gates[1].clear()
            stop = bench.send(4, A)
            await bench.clock.sleep_ms(10)
            stop()
            bench.gates[1].set()
            await bench.clock.sleep_ms(60_000)
        assert bench.outcomes[4] == []
        assert len(bench.requests) == 4

    virtual(scenario)


def test_close_ends_everything() -> None:
    async def scenario(bench: MarkerBench) -> None:
        bench.lead(HERE, A)
        bench.lead(1, B)
        bench.lead(NO_BROKER, C)
        for broker_id in (HERE, 1):
            bench.gates[broker_id].clear()
        stop = bench.send(4, A, B, C, TopicPartition("unknown", 0))
        bench.send(5, B)
        await bench.clock.sleep_ms(10)
        for _ in range(2):
            await bench.sender.close()
        stop()
        bench.send(6, A)()
        await bench.clock.sleep_ms(60_000)
        assert bench.outcomes == {4: [], 5: [], 6: []}

    virtual(scenario)
