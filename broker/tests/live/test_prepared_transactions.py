"""A prepared transaction outlives its producer, its timeout, other producers and the broker."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final
from uuid import uuid4

import confluent_kafka
import pytest
from click.testing import CliRunner

from odradek.base.errors import InvalidTransactionStateError, RequestTimedOutError
from odradek.base.types import TopicPartition
from odradek.cli.main import cli
from odradek.client.admin import Admin
from odradek.client.blocking.client import BlockingClient
from odradek.client.models import PreparedTransaction
from odradek.client.producer.producer import Producer
from odradek.client.settings import ClientSettings
from odradek.testing.plugin import ClusterFactory
from odradek.testing.running_cluster import RunningCluster
from odradek_testkit.interop.transactional import read, transactional

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(600)]

TIMEOUT_MS: Final = 1000
CONFIG: Final = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
    "transaction.state.log.num.partitions": 2,
    "zookeeper.session.timeout.ms": 30_000,
}
SECONDS: Final = 90


@pytest.fixture
def cluster(odradek_cluster_factory: ClusterFactory) -> RunningCluster:
    return odradek_cluster_factory(brokers=1, topics={"t": {"partitions": 2, "replicas": 1}}, config=CONFIG)


def settings(cluster: RunningCluster, name: str | None = None, **changes: Any) -> ClientSettings:
    given = {"transactional_id": name, "transaction_timeout_ms": TIMEOUT_MS} if name else {}
    return ClientSettings.of(cluster.bootstrap, default_api_timeout_ms=60_000, **given, **changes)


async def prepare(cluster: RunningCluster, name: str, text: bytes) -> PreparedTransaction:
    """Prepare a transaction with a record in each partition, and close its producer."""
    async with Producer(settings(cluster, name)) as producer:
        await producer.init_transactions()
        producer.begin_transaction()
        for number in (0, 1):
            await producer.send("t", text, partition=number)
        return await producer.prepare_transaction()


async def until_a_timeout_is_over(cluster: RunningCluster, admin: Admin) -> None:
    """Begin another transaction, and return when the coordinator has aborted it because of its timeout."""
    name = f"open-{uuid4().hex[:8]}"
    other = await asyncio.to_thread(transactional, cluster.bootstrap, name, **{"transaction.timeout.ms": TIMEOUT_MS})
    other.begin_transaction()
    other.produce("t", "too late", partition=0)
    await asyncio.to_thread(other.flush, SECONDS)
    async with asyncio.timeout(SECONDS):
        while (await admin.describe_transactions([name]))[name].state != "CompleteAbort":
            pass


async def seen(cluster: RunningCluster) -> list[tuple[int, str]]:
    return sorted(await asyncio.to_thread(read, cluster.bootstrap, "t", 2))


async def until_seen(cluster: RunningCluster, expected: list[tuple[int, str]]) -> None:
    async with asyncio.timeout(SECONDS):
        while await seen(cluster) != expected:
            pass


def command(cluster: RunningCluster, *arguments: str) -> Any:
    result = CliRunner().invoke(cli, ["transaction", *arguments, "-b", cluster.bootstrap, "--output", "json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


async def test_it_outlives_its_timeout_and_the_broker(cluster: RunningCluster) -> None:
    prepared = PreparedTransaction.from_json((await prepare(cluster, "tx", b"kept")).to_json())
    async with Admin(settings(cluster)) as admin:
        await until_a_timeout_is_over(cluster, admin)
        assert [each.prepared for each in await admin.list_prepared()] == [prepared]
    assert await seen(cluster) == []

    await asyncio.to_thread(cluster.kill, 0)
    await asyncio.to_thread(cluster.start_broker, 0)
    async with Admin(settings(cluster)) as admin:
        await until_a_timeout_is_over(cluster, admin)
        assert [each.prepared for each in await admin.list_prepared()] == [prepared]
        everywhere = [TopicPartition("t", 0), TopicPartition("t", 1)]
        assert await admin.find_hanging_transactions(everywhere, open_for_ms=0) == []
        await admin.commit_prepared(prepared)
        await admin.commit_prepared(prepared)
        with pytest.raises(InvalidTransactionStateError, match="it was committed"):
            await admin.abort_prepared(prepared)
        assert await admin.list_prepared() == []
    await until_seen(cluster, [(0, "kept"), (1, "kept")])


async def test_producers_of_all_kinds_wait_for_its_end(cluster: RunningCluster) -> None:
    prepared = await prepare(cluster, "tx", b"aborted")
    stock = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "tx", "log_level": 0})
    with pytest.raises(confluent_kafka.KafkaException):
        await asyncio.to_thread(stock.init_transactions, 3)
    async with Admin(settings(cluster)) as admin, Producer(settings(cluster, "tx", max_block_ms=1000)) as own:
        with pytest.raises(RequestTimedOutError, match="or is prepared"):
            await own.init_transactions()
        assert [each.prepared for each in await admin.list_prepared()] == [prepared]
        await admin.abort_prepared(prepared)
        async with asyncio.timeout(SECONDS):
            while True:
                try:
                    await own.init_transactions()
                    break
                except RequestTimedOutError:
                    continue
        # The stock client asks for an epoch, too, until it is fenced or fences: it has not ended anything.
        assert await admin.list_prepared() == []
    assert await seen(cluster) == []


def test_the_blocking_clients_and_the_commands(cluster: RunningCluster) -> None:
    found = []
    for name in ("a", "b"):
        with BlockingClient(settings(cluster, name)) as client:
            producer = client.producer()
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", b"x", partition=0)
            found.append(producer.prepare_transaction())
            assert [each.prepared for each in client.admin.list_prepared()] == found
    listed = command(cluster, "list", "--state", "Prepared")
    assert [(row["transactional_id"], row["state"]) for row in listed] == [("a", "Prepared"), ("b", "Prepared")]
    assert command(cluster, "list", "--state", "Ongoing") == []
    assert [row["state"] for row in command(cluster, "describe", "a", "b")] == ["Prepared"] * 2
    for verb, each in zip(("commit", "abort"), found, strict=True):
        owner = ["--producer-id", str(each.producer_id), "--producer-epoch", str(each.epoch), "--yes"]
        assert command(cluster, verb, each.transactional_id, *owner)["producer_id"] == each.producer_id
    assert command(cluster, "list", "--state", "Prepared") == []


async def test_the_end_by_its_own_producer(cluster: RunningCluster) -> None:
    async with Producer(settings(cluster, "tx")) as producer, Admin(settings(cluster)) as admin:
        await producer.init_transactions()
        for text, end in ((b"one", producer.commit_transaction), (b"two", producer.abort_transaction)):
            producer.begin_transaction()
            await producer.send("t", text, partition=0)
            prepared = await producer.prepare_transaction()
            await end()
            assert (await admin.describe_transactions(["tx"]))["tx"].timeout_ms == TIMEOUT_MS
            assert (await admin.describe_transactions(["tx"]))["tx"].producer_epoch == prepared.epoch + 1
    await until_seen(cluster, [(0, "one")])
