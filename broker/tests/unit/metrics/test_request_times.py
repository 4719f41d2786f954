"""The parts of a request's time, with real connections, dispatcher and handlers in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from odradek.base.errors import NotControllerError
from odradek.metrics.request_stats import PARTS
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message, encode_request
from odradek.server.dispatch import error_codes
from odradek_testkit.loop import VirtualClock, run_virtual
from odradek_testkit.replicas import record_set
from odradek_testkit.server import MemoryServer

DESCRIBE: Message = {"include_cluster_authorized_operations": False, "endpoint_type": 1}
DESCRIBED: Message = {
    "error_code": 0,
    "error_message": None,
    "cluster_id": "c",
    "controller_id": 1,
    "brokers": [],
    "cluster_authorized_operations": 0,
    "throttle_time_ms": 0,
    "endpoint_type": 1,
}


def play(
    directory: Path,
    scenario: Callable[[MemoryServer], Coroutine[Any, Any, None]],
    answer: Callable[[], Awaitable[Message]] | None = None,
) -> None:
    """Run a scenario on a server; `answer` replaces the handler of DescribeCluster."""

    async def handler(context: object, request: object) -> Message:
        assert answer is not None
        return await answer()

    async def main() -> None:
        replace = None if answer is None else {ApiKey.DESCRIBE_CLUSTER: handler}
        server = MemoryServer(directory, VirtualClock(), replace=replace)
        await server.start()
        try:
            await scenario(server)
        finally:
            await server.close()

    run_virtual(main())


def times(server: MemoryServer, api: str) -> dict[str, float]:
    """Return the milliseconds of all requests of an API, by part."""
    return {
        part: pytest.approx(quantiles.total, abs=0.01)
        for part, quantiles in zip(PARTS, server.request_stats.times_of(api).parts, strict=True)
    }


async def turns() -> None:
    """Run the callbacks of the next iterations of the loop."""
    for _ in range(5):
        await asyncio.sleep(0)


def produce(*values: bytes, acks: int = 1, timeout: int = 1000) -> Message:
    records = bytes(record_set(*values))
    topics = [{"name": "t", "partition_data": [{"index": 0, "records": records}]}]
    return {"transactional_id": None, "acks": acks, "timeout_ms": timeout, "topic_data": topics}


def test_a_handler_that_waits_spends_the_time_of_others(tmp_path: Path) -> None:
    async def answer() -> Message:
        await asyncio.sleep(0.2)
        await asyncio.sleep(0.1)
        return DESCRIBED

    async def scenario(server: MemoryServer) -> None:
        await server.ask(ApiKey.DESCRIBE_CLUSTER, 1, DESCRIBE)
        await turns()
        assert times(server, "DescribeCluster") == {
            "requestqueue": 0,
            "local": 0,
            "remote": 300,
            "responsequeue": 0,
            "responsesend": 0,
            "total": 300,
        }
        assert server.dispatcher.waiting == 0

    play(tmp_path, scenario, answer)


def test_a_handler_that_waits_and_fails_is_timed_too(tmp_path: Path) -> None:
    async def answer() -> Message:
        await asyncio.sleep(0.2)
        raise NotControllerError("not here")

    async def scenario(server: MemoryServer) -> None:
        await server.ask(ApiKey.DESCRIBE_CLUSTER, 1, DESCRIBE)
        await turns()
        assert times(server, "DescribeCluster")["remote"] == 200
        assert dict.fromkeys(server.request_stats.error_counts()) == {
            ("DescribeCluster", 0, 0): None,
            ("DescribeCluster", NotControllerError.code, 1): None,
        }

    play(tmp_path, scenario, answer)


def test_a_handler_may_take_a_cancellation_and_go_on(tmp_path: Path) -> None:
    """An exception in the first await of a handler is the handler's to handle."""

    async def answer() -> Message:
        try:
            await asyncio.wait_for(asyncio.Event().wait(), 0.05)
        except TimeoutError:
            await asyncio.sleep(0.05)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            task.uncancel()
        return DESCRIBED

    async def scenario(server: MemoryServer) -> None:
        answered = await server.ask(ApiKey.DESCRIBE_CLUSTER, 1, DESCRIBE)
        assert answered.cluster_id == "c"
        await turns()
        assert times(server, "DescribeCluster")["total"] == 100

    play(tmp_path, scenario, answer)


def test_a_fetch_without_records_waits_for_others(tmp_path: Path) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000, "log_start_offset": -1}
        message: Message = {
            "replica_id": -1,
            "max_wait_ms": 500,
            "min_bytes": 1,
            "max_bytes": 1000,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic": "t", "partitions": [{**partition, "current_leader_epoch": -1}]}],
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        await server.ask(ApiKey.FETCH, 11, message)
        await turns()
        found = times(server, "Fetch")
        assert (found["local"], found["remote"], found["total"]) == (0, 500, 500)
        assert server.request_stats.answers()["Fetch"] == 1

    play(tmp_path, scenario)


def test_an_answer_waits_for_those_before_it(tmp_path: Path) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1, 2]}, brokers=(1, 2))
        peer = server.connect()
        # The first waits for a follower that never comes, the second is answered at once.
        for number, acks in enumerate((-1, 1)):
            message = produce(b"v", acks=acks, timeout=400)
            last = peer.send(encode_request(ApiKey.PRODUCE, 9, number, "tester", message))
        await last
        await turns()
        assert times(server, "Produce") == {
            "requestqueue": 0,
            "local": 0,
            "remote": 400,
            "responsequeue": 400,
            "responsesend": 0,
            "total": 800,
        }

    play(tmp_path, scenario)


def test_a_peer_that_does_not_read_prolongs_the_send_time(tmp_path: Path) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        peer = server.connect()
        peer._connection.pause_writing()
        peer._connection.resume_writing()
        answered = peer.send(encode_request(ApiKey.PRODUCE, 9, 1, "tester", produce(b"v")))
        peer._connection.pause_writing()
        await answered
        await asyncio.sleep(0.25)
        assert times(server, "Produce")["total"] == 0, "it is not sent yet"
        peer._connection.resume_writing()
        found = times(server, "Produce")
        assert (found["responsesend"], found["total"]) == (250, 250)

    play(tmp_path, scenario)


def test_without_a_response_there_is_nothing_to_wait_for(tmp_path: Path) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        for number in range(3):
            server.connect().send(encode_request(ApiKey.PRODUCE, 9, number, "tester", produce(b"v", acks=0)))
        assert server.request_stats.times_of("Produce").parts[0].count == 3

    play(tmp_path, scenario)


def test_what_is_lost_with_its_connection_is_not_timed(tmp_path: Path) -> None:
    async def answer() -> Message:
        await asyncio.sleep(0.2)
        return DESCRIBED

    async def scenario(server: MemoryServer) -> None:
        peer = server.connect()
        lost = peer.send(encode_request(ApiKey.DESCRIBE_CLUSTER, 1, 1, "tester", DESCRIBE))
        await asyncio.sleep(0.1)
        peer.abort()
        await asyncio.sleep(0.2)
        assert lost.exception() is not None
        assert server.request_stats.answers() == {"DescribeCluster": 1}
        assert times(server, "DescribeCluster")["total"] == 0

    play(tmp_path, scenario, answer)


def test_errors_of_partitions_are_counted_by_their_codes(tmp_path: Path) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1], 1: [2]}, brokers=(1, 2))
        topics = [{"name": "t", "partitions": [{"partition_index": n, "timestamp": -1} for n in (0, 1, 7)]}]
        await server.ask(ApiKey.LIST_OFFSETS, 1, {"replica_id": -1, "topics": topics})
        found = sorted(each for each in server.request_stats.error_counts() if each[0] == "ListOffsets")
        assert found == [("ListOffsets", 0, 1), ("ListOffsets", 3, 1), ("ListOffsets", 6, 1)]
        message = produce(b"v")
        message["topic_data"][0]["partition_data"][0]["index"] = 1
        await server.ask(ApiKey.PRODUCE, 9, message)
        assert ("Produce", 6, 1) in server.request_stats.error_counts()

    play(tmp_path, scenario)


@pytest.mark.parametrize(
    ("message", "depth", "codes"),
    [
        ({"error_code": 0}, 3, []),
        ({"error_code": 5, "names": ["a", "b"], "ids": (1, 2)}, 3, [5]),
        ({"topics": [{"error_code": 1, "partitions": [{"error_code": 2}, {"error_code": 0}]}]}, 3, [1, 2]),
        ({"topics": [{"error_code": 1, "partitions": [{"error_code": 2}]}]}, 1, [1]),
        ({"topics": [{"error_code": 1}]}, 0, []),
        ({"topics": [], "partitions": [{}, {"error_code": 4}]}, 3, [4]),
        ({"error_code": 0, "results": [{"topics": [{"parts": [{"partition_error_code": 51}]}]}]}, 3, [51]),
    ],
)
def test_error_codes_of_a_response(message: Message, depth: int, codes: list[int]) -> None:
    assert list(error_codes(message, depth)) == codes
