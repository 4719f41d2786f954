"""The closed loop of the load client against scripted responses: counting, checks, errors and latencies."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Thread
from typing import Final

import pytest
from comparison.batches import batch
from comparison.clients.busy import Assignment, assignments, load_connections
from comparison.clients.closed_loop import ClosedLoop, Cycle, LoadConnection, LoadError, ResponseLayout
from comparison.wire import Address, Connection

from odradek.base.types import TopicPartition
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import decode_header, encode_response
from odradek.protocol.hotpath import ProducedPartition, decode_produce, encode_produce_response

TOPIC: Final = "räte"
RECORDS: Final = batch(b"value", 1, timestamp_ms=1)
WINDOW: Final = 3


def response(cycle: Cycle, request: int, *, error: int = 0, correlation_id: int | None = None) -> bytes:
    """The response to a request of a cycle, correct unless the arguments say otherwise."""
    number = request % cycle.length
    row = ProducedPartition(cycle.partitions[number], error, request)
    return bytes(encode_produce_response(7, number if correlation_id is None else correlation_id, [row]))


class Fake:
    """A client with one connection to a test that plays the broker."""

    def __init__(self, budget: int, *, partitions: tuple[int, ...] = (4,), least: int = 64) -> None:
        self.cycle = Cycle([TopicPartition(TOPIC, each) for each in partitions], RECORDS, window=WINDOW, least=least)
        self.broker, mine = socket.socketpair()
        self.broker.settimeout(10)
        layout = ResponseLayout(TOPIC, len(response(self.cycle, 0)))
        self.connection = LoadConnection("connection 5", mine, self.cycle, layout, budget)
        self.loop = ClosedLoop([self.connection])

    def receive(self, requests: int) -> list[tuple[int, int]]:
        """Return correlation id and partition of the next requests. Nothing else has arrived afterwards."""
        expected = requests * self.cycle.frame_bytes
        received = b""
        while len(received) < expected:
            received += self.broker.recv(expected - len(received))
        self.broker.setblocking(False)
        with pytest.raises(BlockingIOError):
            self.broker.recv(1)
        self.broker.settimeout(10)
        frames = [
            received[start : start + self.cycle.frame_bytes] for start in range(0, expected, self.cycle.frame_bytes)
        ]
        return [decoded(frame) for frame in frames]

    def close(self) -> None:
        self.loop.close()
        self.broker.close()

    def begin(self) -> None:
        """Send the first requests."""
        self.connection.begin()

    def answer(self, data: bytes) -> None:
        """Send bytes, and let the client receive them."""
        self.broker.sendall(data)
        self.loop.turn(10)


def decoded(frame: bytes) -> tuple[int, int]:
    header, position = decode_header(memoryview(frame)[4:])
    [(partition, records)] = decode_produce(header.api_version, memoryview(frame)[4:], position).entries
    assert bytes(records or b"") == RECORDS
    return header.correlation_id, partition.partition


@contextmanager
def begun(budget: int = 100, *, partitions: tuple[int, ...] = (4,), least: int = 64) -> Iterator[Fake]:
    """A client that has sent its first requests, which the broker has received."""
    fake = Fake(budget, partitions=partitions, least=least)
    try:
        fake.begin()
        first = fake.receive(min(WINDOW, budget))
        assert first == [(n, fake.cycle.partitions[n].partition) for n in range(len(first))]
        yield fake
    finally:
        fake.close()


def test_each_response_releases_one_request_until_the_budget_is_used_up() -> None:
    with begun(5) as fake:
        for request in range(2):
            fake.answer(response(fake.cycle, request))
            assert fake.receive(1) == [(request + WINDOW, 4)]
        assert fake.connection.acknowledged == 2
        fake.answer(b"".join(response(fake.cycle, request) for request in (2, 3, 4)))
        assert fake.receive(0) == []
        assert fake.connection.done
        assert len(fake.loop.milliseconds()) == 5


def test_coalesced_responses_release_as_many_requests_at_once() -> None:
    with begun() as fake:
        fake.answer(b"".join(response(fake.cycle, request) for request in range(WINDOW)))
        assert fake.connection.acknowledged == WINDOW
        assert fake.receive(WINDOW) == [(3, 4), (4, 4), (5, 4)]


def test_a_split_response_counts_when_it_is_complete() -> None:
    with begun() as fake:
        data = response(fake.cycle, 0) + response(fake.cycle, 1)
        counts, position = [], 0
        for end in (2, 20, len(data) - 1, len(data)):
            fake.answer(data[position:end])
            fake.connection.check()
            counts.append(fake.connection.acknowledged)
            position = end
        assert counts == [0, 0, 1, 2]
        assert fake.receive(2) == [(3, 4), (4, 4)]


def test_frames_repeat_and_their_correlation_ids_with_them() -> None:
    with begun(40, partitions=(2, 7), least=1) as fake:
        assert fake.cycle.length == 4
        for request in range(40 - WINDOW):
            fake.answer(response(fake.cycle, request))
            following = (request + WINDOW) % 4
            assert fake.receive(1) == [(following, (2, 7)[following % 2])]


def test_checks_continue_over_many_responses() -> None:
    with begun(1000) as fake:
        for request in range(600):
            fake.answer(response(fake.cycle, request))
            fake.receive(1)
        assert fake.connection.acknowledged == 600
        fake.answer(response(fake.cycle, 600, error=6))
        with pytest.raises(LoadError, match=r"^connection 5: the response to request 600 has the error code 6 instead"):
            fake.connection.check()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"error": 3}, "request 1 has the error code 3 instead of 0"),
        ({"correlation_id": 2}, "request 1 has the correlation id 2 instead of 1"),
    ],
)
def test_a_wrong_response_is_reported_at_the_end_at_the_latest(changes: dict[str, int], message: str) -> None:
    with begun(WINDOW) as fake:
        fake.answer(response(fake.cycle, 0))
        fake.answer(response(fake.cycle, 1, **changes))  # type: ignore[arg-type]
        with pytest.raises(LoadError, match=message):
            fake.answer(response(fake.cycle, 2))


def test_a_response_for_another_partition_is_reported() -> None:
    with begun(1) as fake:
        other = Cycle([TopicPartition(TOPIC, 5)], RECORDS, window=WINDOW)
        with pytest.raises(LoadError, match="request 0 has the partition 5 instead of 4"):
            fake.answer(response(other, 0))


def test_a_response_for_another_topic_is_reported() -> None:
    with begun(1) as fake:
        other = Cycle([TopicPartition("räts", 4)], RECORDS, window=WINDOW)
        with pytest.raises(LoadError, match=r"request 0 has the topic b'r.*ts' instead of b'r.*te'"):
            fake.answer(response(other, 0))


def test_topics_have_names_of_one_length() -> None:
    cycle = Cycle([TopicPartition("a", 0), TopicPartition("b", 1)], RECORDS, window=WINDOW)
    assert len(cycle.frames) == (cycle.length + WINDOW) * cycle.frame_bytes
    with pytest.raises(ValueError, match="different lengths"):
        Cycle([TopicPartition("a", 0), TopicPartition("bb", 1)], RECORDS, window=WINDOW)


def test_a_response_of_another_size_is_reported_although_it_is_incomplete() -> None:
    with begun() as fake:
        fake.answer(struct.pack(">ii", 10, 0))
        with pytest.raises(LoadError, match="request 0 has the size 10 instead of"):
            fake.connection.check()


def test_more_responses_than_requests_are_reported() -> None:
    with begun() as fake, pytest.raises(LoadError, match="connection 5: more responses than requests after 4 of 100"):
        fake.answer(b"".join(response(fake.cycle, request) for request in range(WINDOW + 1)))


def test_a_closed_connection_is_reported() -> None:
    with begun() as fake:
        fake.answer(response(fake.cycle, 0))
        fake.receive(1)
        fake.broker.close()
        with pytest.raises(LoadError, match="connection 5: the broker closed it after 1 of 100 responses"):
            fake.loop.turn(10)


def test_a_reset_connection_is_reported() -> None:
    with begun() as fake:
        fake.answer(response(fake.cycle, 0))
        fake.broker.close()  # It has not read the last request.
        with pytest.raises(LoadError, match=r"connection 5: .*reset by peer after 1 of 100 responses"):
            fake.loop.turn(10)


def test_a_wrong_response_before_the_end_of_a_connection_is_the_reason() -> None:
    with begun() as fake:
        fake.broker.sendall(response(fake.cycle, 0, error=87))
        fake.broker.shutdown(socket.SHUT_WR)
        fake.loop.turn(10)
        with pytest.raises(LoadError, match="the error code 87"):
            fake.loop.turn(10)


def test_a_broker_that_does_not_answer_is_reported() -> None:
    with begun() as fake, pytest.raises(LoadError, match="no response within 0 s: 1 connections wait, 0 requests are"):
        fake.loop.turn(0)


def test_large_requests_are_sent_completely_though_the_socket_accepts_only_parts() -> None:
    records = batch(bytes(400_000), 1, timestamp_ms=1)
    cycle = Cycle([TopicPartition(TOPIC, 0)], records, window=WINDOW)
    assert cycle.length == WINDOW + 1
    layout = ResponseLayout(TOPIC, len(response(cycle, 0)))
    broker, mine = socket.socketpair()
    with broker, broker.makefile("rb") as stream:
        loop = ClosedLoop([LoadConnection("one", mine, cycle, layout, 20)])
        received = []

        def serve() -> None:
            for request in range(20):
                header, _ = decode_header(memoryview(stream.read(cycle.frame_bytes))[4:])
                received.append(header.correlation_id)
                broker.sendall(response(cycle, request))

        thread = Thread(target=serve)
        thread.start()
        loop.run()
        thread.join()
        loop.close()
    assert received == [number % cycle.length for number in range(20)]
    assert len(loop.milliseconds()) == 20


def test_latency_runs_from_the_release_of_a_request_to_its_response() -> None:
    """With receipts at a < b < c and the start at 0, requests 0 to 2 were released at 0 and the others at a, b, b."""
    with begun(6) as fake:
        fake.answer(response(fake.cycle, 0))
        fake.answer(response(fake.cycle, 1) + response(fake.cycle, 2))
        fake.answer(b"".join(response(fake.cycle, request) for request in (3, 4, 5)))
        a, b, same, *others = fake.connection.milliseconds()
    assert 0 < a < b == same
    c = a + others[0]
    assert c > b
    assert others[1:] == pytest.approx([c - b, c - b])


def test_the_layout_is_learned_from_a_response_that_is_decoded() -> None:
    cycle = Cycle([TopicPartition(TOPIC, 4)], RECORDS, window=WINDOW)
    for error in (0, 3):
        answer = response(cycle, 0, error=error)
        with answering([answer]) as address, Connection(address) as connection:
            if error:
                with pytest.raises(LoadError, match=r"the first produce request to räte .*error_code=3"):
                    ResponseLayout.learn(connection, cycle)
            else:
                assert ResponseLayout.learn(connection, cycle).size == len(answer)


@contextmanager
def answering(answers: list[bytes]) -> Iterator[Address]:
    """A server that answers the first requests, each on the connection and in the order in which they arrive."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as open_ones:

        def serve() -> None:
            for answer in answers:
                accepted = open_ones.enter_context(listener.accept()[0])
                accepted.recv(1 << 16)
                accepted.sendall(answer)

        thread = Thread(target=serve)
        thread.start()
        yield Address(*listener.getsockname())
        thread.join()


def metadata() -> bytes:
    message = {"brokers": [], "cluster_id": None, "controller_id": 0, "topics": []}
    return bytes(encode_response(ApiKey.METADATA, 7, 0, message))


def test_connections_are_open_before_the_load_begins() -> None:
    partition = TopicPartition("t", 0)
    cycle = Cycle([partition], RECORDS, window=WINDOW)
    wanted = {"window": WINDOW, "record_bytes": 5, "acks": 1, "requests": 50}
    with answering([response(cycle, 0), metadata(), metadata()]) as address, ExitStack() as closing:
        found = load_connections(wanted, [Assignment(address, (partition,))] * 2, closing)
        assert [one.acknowledged for one in found] == [0, 0]


A, B = Address("a", 1), Address("b", 2)


def led(*leaders: Address) -> dict[TopicPartition, Address]:
    return {TopicPartition("t", number): leader for number, leader in enumerate(leaders)}


def numbers(found: list[Assignment]) -> list[tuple[int, ...]]:
    return [tuple(each.partition for each in one.partitions) for one in found]


def test_connections_share_partitions_if_there_are_more_of_them() -> None:
    found = assignments(led(A, A), 5)
    assert numbers(found) == [(0,), (1,), (0,), (1,), (0,)]


def test_connections_produce_to_several_partitions_if_there_are_fewer_of_them() -> None:
    found = assignments(led(*[A] * 7), 3)
    assert numbers(found) == [(0, 3, 6), (1, 4), (2, 5)]


def test_connections_are_spread_over_leaders() -> None:
    found = assignments(led(A, B, A, A), 5)
    assert [one.broker for one in found] == [A, B, A, B, A]
    assert numbers(found) == [(0,), (1,), (2,), (1,), (3,)]


def test_too_few_connections_are_refused() -> None:
    with pytest.raises(ValueError, match="1 connections do not reach all 2 leaders"):
        assignments(led(A, B), 1)
