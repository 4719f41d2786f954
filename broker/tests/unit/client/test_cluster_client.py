"""A client's view of the cluster and its connections, with an in-memory cluster, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from odradek.base.errors import (
    AuthenticationError,
    ConfigError,
    GroupAuthorizationFailedError,
    NetworkError,
    NotControllerError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from odradek.base.types import TopicPartition
from odradek.client.admin import Admin
from odradek.client.cluster_client import Cluster
from odradek.client.connections import Link
from odradek.client.metadata import Node
from odradek.client.models import NewTopic
from odradek.client.settings import ClientSettings
from odradek.protocol.apis import ApiKey
from odradek_testkit.loop import VirtualClock, run_virtual

SETTINGS = ClientSettings.of("fake:9001,fake:9002", default_api_timeout_ms=5_000)


def with_cluster(fake: Any, work: Callable[[Cluster], Awaitable[None]], **changes: Any) -> None:
    async def main() -> None:
        async with Cluster(SETTINGS.replace(**changes), clock=VirtualClock(), connect=fake.connect) as cluster:
            await work(cluster)

    run_virtual(main())
    assert fake.open_links == 0


def test_a_client_without_bootstrap_servers_is_refused() -> None:
    with pytest.raises(ConfigError):
        Cluster(ClientSettings())


def test_an_unreachable_cluster_raises_in_time(fakes: Any) -> None:
    fake = fakes.cluster({"t": 1})
    fake.down = {1, 2}

    async def main() -> None:
        clock = VirtualClock()
        begun = clock.monotonic_ms()
        with pytest.raises(NetworkError):
            async with Cluster(SETTINGS, clock=clock, connect=fake.connect):
                pass
        assert clock.monotonic_ms() - begun == pytest.approx(5_000, abs=50)

    run_virtual(main())


def test_a_broker_that_refuses_the_client_ends_the_wait_at_once_and_later_calls_try_again(fakes: Any) -> None:
    fake = fakes.cluster({"t": 1})
    is_refused = True

    async def connect(node: Node) -> Link:
        if is_refused:
            raise AuthenticationError(f"{node.host} refused the client")
        link: Link = await fake.connect(node)
        return link

    async def main() -> None:
        nonlocal is_refused
        clock = VirtualClock()
        with pytest.raises(AuthenticationError, match="fake refused the client"):
            async with Cluster(SETTINGS, clock=clock, connect=connect):
                pass
        is_refused = False
        async with Cluster(SETTINGS, clock=clock, connect=connect) as cluster:
            assert cluster.view.nodes
            assert (await cluster.topic("t")).partitions

    run_virtual(main())


def test_a_topic_that_appears_later_is_waited_for(fakes: Any) -> None:
    fake = fakes.cluster({"t": 1})

    async def work(cluster: Cluster) -> None:
        waiting = asyncio.ensure_future(cluster.topic("late"))
        await asyncio.sleep(1)
        assert not waiting.done()
        fake.logs[TopicPartition("late", 0)] = type(fake.logs[TopicPartition("t", 0)])(leader=1)
        assert list((await waiting).partitions) == [0]
        with pytest.raises(UnknownTopicOrPartitionError):
            await cluster.topic("never")

    with_cluster(fake, work)


def test_callers_share_one_connection_attempt(fakes: Any) -> None:
    fake = fakes.cluster({"t": 1})

    async def work(cluster: Cluster) -> None:
        before = fake.open_links
        first, second = await asyncio.gather(cluster.connection(2), cluster.connection(2))
        assert first is second
        assert await cluster.connection(2, "other") is not first
        assert fake.open_links == before + 2

    with_cluster(fake, work)


def test_an_unreachable_node_is_retried_after_a_backoff(fakes: Any) -> None:
    fake = fakes.cluster({"t": 1})
    attempts = 0
    real = fake.connect

    async def counting(node: Any) -> Any:
        nonlocal attempts
        attempts += node.node_id == 2
        return await real(node)

    fake.connect = counting

    async def work(cluster: Cluster) -> None:
        fake.down = {2}
        for _ in range(200):
            with pytest.raises(NetworkError):
                await cluster.connection(2)
            await asyncio.sleep(0.01)
        assert 3 <= attempts <= 8
        fake.down = set()
        await asyncio.sleep(2)
        assert (await cluster.connection(2)).is_open

    with_cluster(fake, work)


def test_old_metadata_is_refreshed(fakes: Any) -> None:
    fake = fakes.cluster({"t": 1})

    async def work(cluster: Cluster) -> None:
        await cluster.topic("t")
        fake.logs[TopicPartition("t", 0)].leader, fake.logs[TopicPartition("t", 0)].epoch = 2, 5
        await asyncio.sleep(0.9)
        assert cluster.view.leader(TopicPartition("t", 0)) == 1
        await asyncio.sleep(0.2)
        assert cluster.view.leader(TopicPartition("t", 0)) == 2

    with_cluster(fake, work, metadata_max_age_ms=1_000)


def test_metadata_requests_respect_the_backoff(fakes: Any) -> None:
    fake = fakes.cluster({"t": 1})

    async def work(cluster: Cluster) -> None:
        await cluster.topic("t")
        before = len(fake.asked)
        for _ in range(1_000):
            cluster.request_refresh()
            await asyncio.sleep(0.001)
        assert 5 <= len(fake.asked) - before <= 20

    with_cluster(fake, work)


def test_retries_end_at_the_deadline_or_with_a_final_error(fakes: Any) -> None:
    fake = fakes.cluster({"t": 1})

    async def work(cluster: Cluster) -> None:
        clock = cluster.clock
        for expected, least_ms in ((NotControllerError, 3_000.0), (GroupAuthorizationFailedError, 0.0)):
            begun = clock.monotonic_ms()
            fake.faults[ApiKey.FIND_COORDINATOR].extend(fakes.fault(code=expected.code) for _ in range(1_000))
            with pytest.raises(expected):
                await cluster.retrying(lambda: cluster.coordinator("g"), cluster.deadline("a test"))
            assert least_ms <= clock.monotonic_ms() - begun <= 5_000
            fake.faults[ApiKey.FIND_COORDINATOR].clear()
        assert await cluster.coordinator("g") == 1

    with_cluster(fake, work)


@pytest.mark.parametrize("lost", ["lose_request", "lose_answer"])
def test_a_creation_with_a_lost_response_succeeds(fakes: Any, lost: str) -> None:
    fake = fakes.cluster({"t": 1})
    fake.faults[ApiKey.CREATE_TOPICS].append(fakes.fault(**{lost: True}))
    made: set[str] = set()

    def create(request: Any) -> Any:
        names = [str(topic.name) for topic in request.topics]
        rows = [
            {"name": name, "error_code": 36 if name in made else 0, "error_message": None, "configs": []}
            for name in names
        ]
        made.update(names)
        return {"topics": rows}

    fake.answers[ApiKey.CREATE_TOPICS] = create

    async def work(cluster: Cluster) -> None:
        admin = Admin(SETTINGS, cluster=cluster)
        await admin.create_topics([NewTopic(name="a", partitions=1)])
        with pytest.raises(TopicAlreadyExistsError):
            await admin.create_topics([NewTopic(name="a", partitions=1)])

    with_cluster(fake, work)
    assert made == {"a"}


def test_a_change_is_sent_to_the_current_controller(fakes: Any) -> None:
    fake = fakes.cluster({"t": 1})
    codes = [NotControllerError.code, 0]

    def delete(request: Any) -> Any:
        code = codes.pop(0)
        return {"responses": [{"name": topic.name, "topic_id": None, "error_code": code} for topic in request.topics]}

    fake.answers[ApiKey.DELETE_TOPICS] = delete

    async def work(cluster: Cluster) -> None:
        await Admin(SETTINGS, cluster=cluster).delete_topics(["t"])

    with_cluster(fake, work)
    assert codes == []
