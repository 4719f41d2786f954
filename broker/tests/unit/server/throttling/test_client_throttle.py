"""Clients above their quotas: throttle times in responses, muted connections, and what is not charged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast
from uuid import UUID

import pytest

from odradek.base.errors import NONE, InvalidRequestError, ThrottlingQuotaExceededError
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import Message, decode_response, encode_request
from odradek.records.v2.batch import BatchBuilder
from odradek.security.quotas.quota_model import DEFAULT, QuotaEntity, QuotaKind, QuotaTable
from odradek_testkit.loop import VirtualLoop
from odradek_testkit.server import MemoryServer

Play = Callable[..., None]
ID: Final = UUID(int=77)
EXCEEDED: Final = ThrottlingQuotaExceededError.code
CLUSTER: Final[Message] = {"include_cluster_authorized_operations": False, "endpoint_type": 1}


def limit(server: MemoryServer, kind: QuotaKind, value: float, client_id: str | None = None) -> None:
    """Give a quota to all clients, or to those with a client id."""
    entity = QuotaEntity(user=DEFAULT) if client_id is None else QuotaEntity(client_id=client_id)
    server.quotas.table = QuotaTable({entity: {kind: value}})


def batch(size: int) -> bytes:
    builder = BatchBuilder(limit_bytes=1 << 20)
    builder.append(None, bytes(size), timestamp_ms=1)
    return builder.build()


def producing(size: int, acks: int = 1) -> Message:
    data = [{"index": 0, "records": batch(size)}]
    topics = [{"name": "t", "partition_data": data}]
    return {"transactional_id": None, "acks": acks, "timeout_ms": 1000, "topic_data": topics}


def fetching(**options: object) -> Message:
    partitions = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
    wait: Message = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20}
    return {**wait, "topics": [{"topic_id": ID, "partitions": partitions}], "forgotten_topics_data": [], **options}


def creating(name: str, partitions: int, *, validate_only: bool = False) -> Message:
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": (), "configs": ()}
    return {"topics": [topic], "timeout_ms": 1, "validate_only": validate_only}


async def waited_ms(server: MemoryServer) -> float:
    """Return how long the connection passes on no request."""
    begin = server.clock.monotonic_ms()
    await server.ask(ApiKey.DESCRIBE_CLUSTER, 1, CLUSTER)
    return server.clock.monotonic_ms() - begin


@pytest.mark.parametrize("version", range(1, API_TABLE[ApiKey.PRODUCE].max_version + 1))
def test_a_producer_above_its_quota_is_told_and_muted(play: Play, version: int) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        if version < 3:
            return
        limit(server, QuotaKind.PRODUCER_BYTE_RATE, 1000)
        first = await server.ask(ApiKey.PRODUCE, version, producing(1000))
        assert first.throttle_time_ms == 0
        second = await server.ask(ApiKey.PRODUCE, version, producing(9000))
        assert 8000 < second.throttle_time_ms < 9000
        assert second.responses[0].partition_responses[0].error_code == NONE
        assert await waited_ms(server) == pytest.approx(second.throttle_time_ms)
        (use,) = server.throttle.uses()["Produce"]
        assert (use.user, use.client_id, use.throttle_ms) == ("ANONYMOUS", "", second.throttle_time_ms)

    play(scenario)


def test_a_producer_without_acknowledgements_is_muted_too(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        limit(server, QuotaKind.PRODUCER_BYTE_RATE, 1000)
        server.peer.send(encode_request(ApiKey.PRODUCE, 9, 1000, "tester", producing(20_000, acks=0)))
        begin = server.clock.monotonic_ms()
        other = server.connect()
        await other.ask(ApiKey.DESCRIBE_CLUSTER, 1, CLUSTER)
        assert server.clock.monotonic_ms() == begin, "other connections are not muted"
        server.peer.send(encode_request(ApiKey.DESCRIBE_CLUSTER, 1, 1001, "tester", CLUSTER))
        assert server.topic_stats.of("t").messages_in == 1
        (use,) = server.throttle.uses()["Produce"]
        assert use.throttle_ms > 9000

    play(scenario)


def test_a_client_with_another_id_is_not_limited(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        limit(server, QuotaKind.PRODUCER_BYTE_RATE, 1, "somebody")
        for _ in range(3):
            assert (await server.ask(ApiKey.PRODUCE, 9, producing(9000))).throttle_time_ms == 0
        assert server.throttle.uses()["Produce"] == []

    play(scenario)


def test_a_connection_follows_changes_of_the_quotas_and_of_its_client_id(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})

        async def throttled(client_id: str | None) -> bool:
            frame = encode_request(ApiKey.PRODUCE, 9, 1, client_id, producing(9000))
            answer: Any = decode_response(ApiKey.PRODUCE, 9, (await server.peer.send(frame))[4:])
            return bool(answer.throttle_time_ms)

        limit(server, QuotaKind.PRODUCER_BYTE_RATE, 1000, "limited")
        assert [await throttled(each) for each in ("limited", "other", None, "limited")] == [True, False, False, True]
        limit(server, QuotaKind.PRODUCER_BYTE_RATE, 1000, "other")
        assert [await throttled(each) for each in ("limited", "other")] == [False, True]
        server.quotas.table = QuotaTable()
        assert not await throttled("other")

    play(scenario)


def test_the_time_of_a_client_without_a_quota_is_not_measured(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        limit(server, QuotaKind.REQUEST_PERCENTAGE, 1, "somebody")
        assert (await server.ask(ApiKey.DESCRIBE_CLUSTER, 1, CLUSTER)).throttle_time_ms == 0
        assert server.throttle.uses()["Request"] == []

    play(scenario, replace=slow(400))


def test_a_quota_of_zero_throttles_for_all_windows(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]})
        limit(server, QuotaKind.PRODUCER_BYTE_RATE, 0)
        assert (await server.ask(ApiKey.PRODUCE, 9, producing(9))).throttle_time_ms == 11_000

    play(scenario)


def fetched(answer: Any) -> list[int]:
    return [len(part.records or b"") for topic in answer.responses for part in topic.partitions]


def test_a_consumer_above_its_quota_waits_with_its_records_and_gets_none_before(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]}, topic_id=ID)
        await server.ask(ApiKey.PRODUCE, 9, producing(9000))
        whole = len(batch(9000))
        limit(server, QuotaKind.CONSUMER_BYTE_RATE, 1000)
        first = await server.ask(ApiKey.FETCH, 13, fetching(session_epoch=0))
        assert fetched(first) == [whole], "a first batch is sent as a whole"
        assert first.throttle_time_ms == whole - 2000
        other = server.connect()
        session: Message = {"session_id": first.session_id, "topics": ()}
        second = await other.ask(ApiKey.FETCH, 13, fetching(**session, session_epoch=1))
        assert (second.error_code, second.session_id, fetched(second)) == (NONE, first.session_id, [])
        assert second.throttle_time_ms == first.throttle_time_ms
        assert await waited_ms(server) == pytest.approx(first.throttle_time_ms)
        third = await server.ask(ApiKey.FETCH, 13, fetching(**session, session_epoch=2))
        assert fetched(third) == [whole], "the session still wants the records"

    play(scenario)


@pytest.mark.parametrize("version", [4, 9])
def test_consumers_of_old_versions_are_muted_too(play: Play, version: int) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]}, topic_id=ID)
        await server.ask(ApiKey.PRODUCE, 9, producing(9000))
        limit(server, QuotaKind.CONSUMER_BYTE_RATE, 1000)
        message = fetching()
        (topic,) = message["topics"]  # type: ignore[misc]
        answer = await server.ask(ApiKey.FETCH, version, {**message, "topics": [{**topic, "topic": "t"}]})
        assert answer.throttle_time_ms > 7000
        assert fetched(answer)[0] > 9000
        assert await waited_ms(server) == pytest.approx(answer.throttle_time_ms)

    play(scenario)


def test_a_throttled_full_fetch_creates_no_session(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]}, topic_id=ID)
        await server.ask(ApiKey.PRODUCE, 9, producing(9000))
        limit(server, QuotaKind.CONSUMER_BYTE_RATE, 0)
        answer = await server.ask(ApiKey.FETCH, 13, fetching(session_epoch=0))
        assert (answer.session_id, fetched(answer), answer.throttle_time_ms) == (0, [], 11_000)
        missing = await server.ask(ApiKey.FETCH, 13, fetching(session_id=99, session_epoch=7))
        assert missing.error_code == 70, "an error of the session is not hidden by the throttle time"

    play(scenario)


def test_a_fetch_is_not_larger_than_a_burst(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1]}, topic_id=ID)
        for _ in range(10):
            await server.ask(ApiKey.PRODUCE, 9, producing(2000))
        limit(server, QuotaKind.CONSUMER_BYTE_RATE, 2500)
        answer = await server.ask(ApiKey.FETCH, 13, fetching())
        assert 4000 < fetched(answer)[0] <= 5000
        assert answer.throttle_time_ms == 0

    play(scenario)


def test_followers_are_not_charged(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce("t", {0: [1, 2]}, topic_id=ID, brokers=(1, 2))
        await server.ask(ApiKey.PRODUCE, 9, producing(9000))
        limit(server, QuotaKind.CONSUMER_BYTE_RATE, 1)
        for _ in range(3):
            answer = await server.ask(ApiKey.FETCH, 13, fetching(replica_id=2))
            assert (answer.throttle_time_ms, fetched(answer)) == (0, [len(batch(9000))])
        limit(server, QuotaKind.REQUEST_PERCENTAGE, 0.001)
        for _ in range(3):
            assert (await server.ask(ApiKey.FETCH, 13, fetching(replica_id=2))).throttle_time_ms == 0
        assert server.throttle.uses()["Request"] == []

    play(scenario)


# Request time


def slow(first_ms: float, then_ms: float = 0.0, *, fails: bool = False) -> dict[ApiKey, Any]:
    """A handler that uses the event loop for some time, waits a minute, and uses it again."""

    async def handler(context: object, request: object) -> Message:
        loop = cast(VirtualLoop, asyncio.get_running_loop())
        loop.pause(first_ms)
        if then_ms:
            await asyncio.sleep(60)
            loop.pause(then_ms)
        if fails:
            raise InvalidRequestError("no")
        return {
            "throttle_time_ms": 0,
            "error_code": 0,
            "error_message": None,
            "endpoint_type": 1,
            "cluster_id": "c",
            "controller_id": 1,
            "brokers": (),
            "cluster_authorized_operations": 0,
        }

    return {ApiKey.DESCRIBE_CLUSTER: handler}


@pytest.mark.parametrize("fails", [False, True])
def test_request_time_above_the_quota_throttles_for_at_most_one_window(play: Play, fails: bool) -> None:
    async def scenario(server: MemoryServer) -> None:
        limit(server, QuotaKind.REQUEST_PERCENTAGE, 5)
        first = await server.ask(ApiKey.DESCRIBE_CLUSTER, 1, CLUSTER)
        assert first.throttle_time_ms == 0
        second = await server.ask(ApiKey.DESCRIBE_CLUSTER, 1, CLUSTER)
        assert second.throttle_time_ms == 1000
        assert second.error_code == (InvalidRequestError.code if fails else NONE)
        begin = server.clock.monotonic_ms()
        await server.ask(ApiKey.DESCRIBE_CLUSTER, 1, CLUSTER)
        assert server.clock.monotonic_ms() - begin == pytest.approx(1000 + 400)
        (use,) = server.throttle.uses()["Request"]
        assert use.rate == pytest.approx(3 * 400 * 0.1 / 10, rel=0.25)

    play(scenario, replace=slow(400, fails=fails))


def test_markers_of_transactions_are_not_throttled(play: Play) -> None:
    async def markers(context: object, request: object) -> Message:
        cast(VirtualLoop, asyncio.get_running_loop()).pause(400)
        return {"markers": ()}

    async def scenario(server: MemoryServer) -> None:
        await server.announce()
        limit(server, QuotaKind.REQUEST_PERCENTAGE, 5)
        for _ in range(3):
            await server.ask(ApiKey.WRITE_TXN_MARKERS, 1, {"markers": ()})
        assert await waited_ms(server) == 0
        (use,) = server.throttle.uses()["Request"]
        assert use.rate == 0

    play(scenario, replace={ApiKey.WRITE_TXN_MARKERS: markers})


def test_time_in_which_a_request_waits_is_not_charged(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        limit(server, QuotaKind.REQUEST_PERCENTAGE, 50)
        await server.ask(ApiKey.DESCRIBE_CLUSTER, 1, CLUSTER)
        (use,) = server.throttle.uses()["Request"]
        assert use.rate == pytest.approx(20 * 0.1 / 10), "the first step has left all windows after a minute"

    play(scenario, replace=slow(30, 20))


def test_a_handler_that_is_cancelled_ends(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        limit(server, QuotaKind.REQUEST_PERCENTAGE, 50)
        asking = asyncio.ensure_future(server.ask(ApiKey.DESCRIBE_CLUSTER, 1, CLUSTER))
        for _ in range(5):
            await asyncio.sleep(0)
        await server.dispatcher.close()
        with pytest.raises(Exception, match="closed"):
            await asking

    play(scenario, replace=slow(30, 20))


# Controller mutations


def test_strict_requests_above_the_mutation_quota_are_refused(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce()
        limit(server, QuotaKind.CONTROLLER_MUTATION_RATE, 1)
        checked = await server.ask(ApiKey.CREATE_TOPICS, 7, creating("a", 100, validate_only=True))
        assert (checked.topics[0].error_code, checked.throttle_time_ms) == (NONE, 0)
        await server.ask(ApiKey.CREATE_TOPICS, 7, creating("a", 12))
        refused = await server.ask(ApiKey.CREATE_TOPICS, 7, creating("b", 1))
        assert (refused.topics[0].error_code, refused.throttle_time_ms) == (EXCEEDED, 999), "the creation took 1 ms"
        assert "controller_mutation_rate" in refused.topics[0].error_message
        assert await server.zk.get_or_none("/brokers/topics/b") is None
        assert await waited_ms(server) == pytest.approx(999)
        await server.ask(ApiKey.CREATE_TOPICS, 7, creating("b", 1))
        assert await server.zk.get_or_none("/brokers/topics/b") is not None
        (use,) = server.throttle.uses()["ControllerMutation"]
        assert (use.user, use.throttle_ms) == ("ANONYMOUS", 999)

    play(scenario)


def test_requests_of_older_clients_are_accepted_and_throttled(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce()
        limit(server, QuotaKind.CONTROLLER_MUTATION_RATE, 1)
        answer = await server.ask(ApiKey.CREATE_TOPICS, 5, creating("a", 13))
        assert answer.topics[0].error_code != EXCEEDED
        assert answer.throttle_time_ms == 1999
        assert await server.zk.get_or_none("/brokers/topics/a") is not None

    play(scenario)


def test_deletions_and_new_partitions_are_charged(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.ask(ApiKey.CREATE_TOPICS, 7, creating("a", 1))
        await server.announce("a", {0: [1]})
        limit(server, QuotaKind.CONTROLLER_MUTATION_RATE, 1)
        growth: Message = {"topics": [{"name": "a", "count": 13, "assignments": None}], "timeout_ms": 1}
        await server.ask(ApiKey.CREATE_PARTITIONS, 3, {**growth, "validate_only": True})
        await server.ask(ApiKey.CREATE_PARTITIONS, 3, {**growth, "validate_only": False})
        deletion: Message = {"topics": [{"name": "a", "topic_id": UUID(int=0)}], "topic_names": (), "timeout_ms": 1}
        refused = await server.ask(ApiKey.DELETE_TOPICS, 6, deletion)
        assert (refused.responses[0].error_code, refused.throttle_time_ms) == (EXCEEDED, 1000)
        await waited_ms(server)
        assert (await server.ask(ApiKey.DELETE_TOPICS, 6, deletion)).responses[0].error_code != EXCEEDED

    play(scenario)


def test_topics_that_are_created_automatically_are_charged(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.announce()
        limit(server, QuotaKind.CONTROLLER_MUTATION_RATE, 0.1)
        for name in ("a", "b", "c"):
            await server.ask(ApiKey.METADATA, 9, {"topics": [{"name": name}], "allow_auto_topic_creation": True})
        refused = await server.ask(ApiKey.CREATE_TOPICS, 7, creating("d", 1))
        assert refused.topics[0].error_code == EXCEEDED

    play(scenario)
