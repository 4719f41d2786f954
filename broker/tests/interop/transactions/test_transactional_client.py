"""Our transactional producer, read-committed consumer and `odradek transaction` with brokers of Apache Kafka 3.9.1."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

import pytest
from click.testing import CliRunner

from odradek import (
    Admin,
    BlockingClient,
    ClientSettings,
    ConfigError,
    Consumer,
    GroupMetadata,
    NewTopic,
    OdradekError,
    Producer,
    TopicPartition,
)
from odradek.base.errors import (
    IllegalGenerationError,
    InvalidTransactionStateError,
    InvalidTransactionTimeoutError,
    MessageTooLargeError,
    ProducerFencedError,
    TransactionAbortableError,
    UnknownMemberIdError,
)
from odradek.cli.main import cli
from odradek.testing.waiting import wait_until
from odradek_testkit.broker_process import OdradekBroker
from odradek_testkit.interop.apache import ApacheBroker, jars

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow]

VERSION: Final = "3.9.1"
PROPERTIES: Final = {
    "zookeeper.session.timeout.ms": "30000",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.max.timeout.ms": "120000",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}
MANY: Final = 50
TRUSTING: Final = 2
"""The broker that does not verify transactions (KIP-890), so that one can hang in its partitions."""

Broker = ApacheBroker | OdradekBroker
Start = Callable[[pytest.FixtureRequest, Path, int, str], Broker]


def properties_of(broker_id: int) -> dict[str, str]:
    return {**PROPERTIES, "transaction.partition.verification.enable": str(broker_id != TRUSTING).lower()}


def apache_broker(request: pytest.FixtureRequest, directory: Path, broker_id: int, ensemble: str) -> Broker:
    folder = jars(VERSION, Path(request.config.rootpath) / ".interop")
    return ApacheBroker(
        folder, directory, broker_id=broker_id, zookeeper=ensemble, properties=properties_of(broker_id), heap="256m"
    )


def odradek_broker(_request: pytest.FixtureRequest, directory: Path, broker_id: int, ensemble: str) -> Broker:
    return OdradekBroker(directory, broker_id=broker_id, zookeeper=ensemble, properties=properties_of(broker_id))


BROKERS: Final[dict[str, Start]] = {"kafka": apache_broker, "odradek": odradek_broker}


class Brokers(NamedTuple):
    """The running brokers, by id."""

    by_id: dict[int, Broker]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{broker.port}" for broker in self.by_id.values())

    def wait_until_registered(self) -> None:
        """Return when clients see all brokers."""
        with BlockingClient(self.bootstrap) as client:
            wait_until(
                lambda: len(client.admin.describe_cluster().brokers) == len(self.by_id),
                what="the brokers in the metadata",
            )


@pytest.fixture(scope="module", params=["kafka", "odradek"])
def brokers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, odradek_zookeeper: str
) -> Iterator[Brokers]:
    """Two brokers of one of the kinds in `BROKERS`."""
    directory = tmp_path_factory.mktemp("transactions")
    ensemble = f"{odradek_zookeeper}/transactions-{uuid4().hex[:8]}"
    start = BROKERS[request.param]
    found = Brokers({number: start(request, directory / str(number), number, ensemble) for number in (1, 2)})
    with ExitStack() as stack:
        for broker in found.by_id.values():
            broker.start()
            stack.callback(broker.stop)
        found.wait_until_registered()
        yield found


class Play:
    """A topic, and clients with a transactional id, of one test."""

    def __init__(self, bootstrap: str) -> None:
        tag = uuid4().hex[:8]
        self.bootstrap: Final = bootstrap
        self.topic: Final = f"topic-{tag}"
        self.group: Final = f"group-{tag}"
        self.transactional_id: Final = f"producer-{tag}"

    def settings(self, **changes: Any) -> ClientSettings:
        return ClientSettings.of(self.bootstrap, **changes)

    def partition(self, number: int = 0) -> TopicPartition:
        return TopicPartition(self.topic, number)

    async def create(self, partitions: int = 1, *, leader: int | None = None, **configs: str) -> None:
        """Create the topic. With `leader`, it has one partition on this broker."""
        async with Admin(self.bootstrap) as admin:
            values = tuple((name.replace("_", "."), value) for name, value in configs.items())
            topic = NewTopic(name=self.topic, partitions=partitions, replication_factor=1, configs=values)
            if leader is not None:
                topic = NewTopic(name=self.topic, assignments=((leader,),), configs=values)
            await admin.create_topics([topic])

    @asynccontextmanager
    async def producer(self, **changes: Any) -> AsyncIterator[Producer]:
        """Yield a producer after `init_transactions`."""
        settings = self.settings(transactional_id=self.transactional_id, **changes)
        async with Producer(settings) as producer:
            await producer.init_transactions()
            yield producer

    @asynccontextmanager
    async def crashing_producer(self) -> AsyncIterator[Producer]:
        """Yield a producer after `init_transactions`, which ends without an abort."""
        producer = Producer(self.settings(transactional_id=self.transactional_id))
        await producer.start()
        try:
            await producer.init_transactions()
            yield producer
        finally:
            await producer._shut_down()

    async def read(self, isolation_level: str) -> list[bytes]:
        """Return the values of all visible records, by partition."""
        settings = self.settings(isolation_level=isolation_level, auto_offset_reset="earliest")
        async with Consumer(settings, self.topic) as consumer:
            ends = await consumer.end_offsets(consumer.assignment())
            found: dict[TopicPartition, list[bytes]] = {}
            for partition in ends:
                while await consumer.position(partition) < ends[partition]:
                    for place, records in (await consumer.getmany(timeout_ms=1_000)).items():
                        found.setdefault(place, []).extend(record.value or b"" for record in records)
            return [value for partition in sorted(found) for value in found[partition]]

    async def committed(self, *, has_open_transaction: bool = False) -> list[bytes]:
        """Return what a read-committed consumer gets. The markers are written after the commit has returned, so this
        waits for them unless a transaction stays open.
        """
        if not has_open_transaction:
            async with (
                Consumer(self.settings(isolation_level="read_committed"), self.topic) as stable,
                Consumer(self.bootstrap) as plain,
            ):
                partitions = stable.assignment()
                while await stable.end_offsets(partitions) != await plain.end_offsets(partitions):
                    await stable.getmany(timeout_ms=50)
        return await self.read("read_committed")

    async def all(self) -> list[bytes]:
        return await self.read("read_uncommitted")


@pytest.fixture
def play(brokers: Brokers) -> Play:
    return Play(brokers.bootstrap)


def test_committed_records_are_visible_and_aborted_ones_are_not(play: Play) -> None:
    async def main() -> None:
        await play.create()
        async with play.producer() as producer:
            async with producer.transaction():
                await producer.send(play.topic, b"first")
            producer.begin_transaction()
            await producer.send_and_wait(play.topic, b"aborted")
            await producer.abort_transaction()
            producer.begin_transaction()
            await producer.send_and_wait(play.topic, b"open")
            assert await play.committed(has_open_transaction=True) == [b"first"]
            assert await play.all() == [b"first", b"aborted", b"open"]
            await producer.commit_transaction()
        assert await play.committed() == [b"first", b"open"]

    asyncio.run(main())


def test_an_error_in_the_block_aborts_the_transaction(play: Play) -> None:
    async def main() -> None:
        await play.create()
        async with play.producer() as producer:
            with pytest.raises(KeyError):
                async with producer.transaction():
                    await producer.send_and_wait(play.topic, b"aborted")
                    raise KeyError
            async with producer.transaction():
                pass
            async with producer.transaction():
                await producer.send(play.topic, b"next")
        assert await play.committed() == [b"next"]

    asyncio.run(main())


def test_close_aborts_an_open_transaction(play: Play) -> None:
    async def main() -> None:
        await play.create()
        async with play.producer() as producer:
            producer.begin_transaction()
            await producer.send_and_wait(play.topic, b"aborted")
        # It returns when the marker is written, long before the coordinator would abort the transaction.
        assert await play.committed() == []

    asyncio.run(main())


def test_a_transaction_of_many_partitions(play: Play) -> None:
    async def main() -> None:
        await play.create(MANY)
        async with play.producer() as producer:
            for turn in range(3):
                async with producer.transaction():
                    for number in range(MANY):
                        await producer.send(play.topic, b"%d" % turn, partition=number)
        assert await play.committed() == [b"0", b"1", b"2"] * MANY

    asyncio.run(main())


def test_offsets_are_committed_with_the_transaction(play: Play) -> None:
    async def main() -> None:
        await play.create()
        async with play.producer() as producer, Admin(play.bootstrap) as admin:
            async with producer.transaction():
                await producer.send_many(play.topic, [(None, b"%d" % number, 1) for number in range(10)])
            settings = play.settings(
                group_id=play.group, enable_auto_commit=False, auto_offset_reset="earliest"
            ).replace(isolation_level="read_committed")
            async with Consumer(settings, play.topic) as consumer:
                records = await consumer.getmany(timeout_ms=20_000, max_records=4)
                offset = await consumer.position(play.partition())
                assert [record.value for record in records[play.partition()]] == [b"0", b"1", b"2", b"3"]
                member = consumer.group_metadata()

                producer.begin_transaction()
                await producer.send_offsets_to_transaction({play.partition(): offset}, member)
                await producer.abort_transaction()
                assert await consumer.committed(play.partition()) is None

                async with producer.transaction():
                    await producer.send(play.topic, b"result")
                    await producer.send_offsets_to_transaction({play.partition(): offset}, member)
                # It waits until the marker is written.
                committed = await consumer.committed(play.partition())
                assert committed is not None
                assert committed.offset == 4
                assert (await admin.group_offsets(play.group))[play.partition()].offset == 4

    asyncio.run(main())


@pytest.mark.parametrize(
    ("member", "expected"),
    [
        ({"generation_id": 77}, IllegalGenerationError),
        ({"member_id": "somebody-else", "generation_id": 1}, UnknownMemberIdError),
    ],
)
def test_offsets_of_a_member_that_lost_its_partitions_are_refused(
    play: Play, member: dict[str, Any], expected: type[Exception]
) -> None:
    async def main() -> None:
        await play.create()
        settings = play.settings(group_id=play.group, enable_auto_commit=False)
        async with play.producer() as producer, Consumer(settings, play.topic) as consumer:
            await consumer.getmany(timeout_ms=5_000)
            producer.begin_transaction()
            stale = consumer.group_metadata()._replace(**member)
            with pytest.raises(expected):
                await producer.send_offsets_to_transaction({play.partition(): 4}, stale)
            with pytest.raises(TransactionAbortableError):
                await producer.commit_transaction()
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send_offsets_to_transaction({play.partition(): 5}, GroupMetadata("another"))

    asyncio.run(main())


def test_a_zombie_is_fenced(play: Play) -> None:
    async def main() -> None:
        await play.create()
        async with play.producer() as zombie:
            zombie.begin_transaction()
            await zombie.send_and_wait(play.topic, b"zombie")
            async with play.producer() as successor:
                # `init_transactions` has aborted the transaction of the zombie.
                assert await play.all() == [b"zombie"]
                assert await play.committed() == []
                sent = await zombie.send(play.topic, b"late")
                with pytest.raises(ProducerFencedError):
                    await zombie.abort_transaction()
                (failed,) = await asyncio.gather(sent, return_exceptions=True)
                assert isinstance(failed, OdradekError)
                with pytest.raises(ProducerFencedError):
                    zombie.begin_transaction()
                async with successor.transaction():
                    await successor.send(play.topic, b"successor")
        assert await play.committed() == [b"successor"]

    asyncio.run(main())


def test_a_crashed_producer_is_recovered(play: Play) -> None:
    async def main() -> None:
        await play.create(3)
        async with play.crashing_producer() as crashed:
            crashed.begin_transaction()
            for number in range(3):
                await crashed.send_and_wait(play.topic, b"lost", partition=number)
        async with play.producer() as producer:
            assert await play.committed() == []
            async with producer.transaction():
                await producer.send(play.topic, b"kept", partition=0)
        assert await play.committed() == [b"kept"]

    asyncio.run(main())


def test_a_refused_record_makes_the_transaction_abortable(play: Play) -> None:
    async def main() -> None:
        await play.create(2, max_message_bytes="1000")
        async with play.producer() as producer:
            for turn in range(2):
                producer.begin_transaction()
                await producer.send_and_wait(play.topic, b"aborted", partition=1)
                large = await producer.send(play.topic, b"x" * 2_000, partition=0)
                with pytest.raises(TransactionAbortableError, match="must be aborted"):
                    await producer.commit_transaction()
                with pytest.raises(MessageTooLargeError):
                    await large
                with pytest.raises(TransactionAbortableError):
                    await producer.send(play.topic, b"too late")
                await producer.abort_transaction()
                async with producer.transaction():
                    for number in range(2):
                        await producer.send(play.topic, b"kept %d" % turn, partition=number)
        assert await play.committed() == [b"kept 0", b"kept 1"] * 2

    asyncio.run(main())


def test_a_transaction_survives_a_restart_of_its_coordinator(play: Play, brokers: Brokers) -> None:
    async def main() -> None:
        await play.create(2)
        async with play.producer() as producer, Admin(play.bootstrap) as admin:
            producer.begin_transaction()
            for number in range(2):
                await producer.send_and_wait(play.topic, b"before", partition=number)
            found = await admin.describe_transactions([play.transactional_id])
            coordinator = brokers.by_id[found[play.transactional_id].coordinator]
            await asyncio.to_thread(coordinator.stop)
            sent = [await producer.send(play.topic, b"during", partition=number) for number in range(2)]
            await asyncio.to_thread(coordinator.start)
            await asyncio.to_thread(brokers.wait_until_registered)
            await producer.commit_transaction()
            assert all(future.done() for future in sent)
        assert await play.committed() == [b"before", b"during"] * 2

    asyncio.run(main())


def test_calls_in_the_wrong_order_are_refused(play: Play) -> None:
    async def main() -> None:
        await play.create()
        async with Producer(play.settings(transactional_id=play.transactional_id)) as producer:
            with pytest.raises(InvalidTransactionStateError, match="call init_transactions first"):
                producer.begin_transaction()
            await producer.init_transactions()
            with pytest.raises(InvalidTransactionStateError, match="call begin_transaction first"):
                await producer.send(play.topic, b"outside")
            with pytest.raises(InvalidTransactionStateError):
                await producer.init_transactions()
            with pytest.raises(InvalidTransactionStateError):
                await producer.commit_transaction()
        async with Producer(play.bootstrap) as producer:
            with pytest.raises(ConfigError, match=r"transactional\.id is missing"):
                await producer.init_transactions()
        slow = play.settings(transactional_id=play.transactional_id, transaction_timeout_ms=3_600_000)
        async with Producer(slow) as producer:
            with pytest.raises(InvalidTransactionTimeoutError):
                await producer.init_transactions()

    asyncio.run(main())


def test_the_blocking_producer_has_transactions(play: Play) -> None:
    asyncio.run(play.create())
    settings = play.settings(transactional_id=play.transactional_id)
    with BlockingClient(settings) as client, client.producer() as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(play.topic, b"committed")
        with pytest.raises(KeyError), producer.transaction():
            producer.send(play.topic, b"aborted").result(30)
            raise KeyError
    assert asyncio.run(play.committed()) == [b"committed"]


def command(play: Play, *arguments: str, code: int = 0) -> str:
    """Run `odradek transaction` and return what it prints on standard output."""
    result = CliRunner().invoke(cli, ["transaction", *arguments, "--bootstrap-server", play.bootstrap])
    assert result.exit_code == code, result.output
    return result.output if code else result.stdout


def test_an_open_transaction_is_listed_and_described(play: Play) -> None:
    async def main() -> None:
        await play.create(2)
        async with play.producer(transaction_timeout_ms=90_000) as producer:
            producer.begin_transaction()
            for number in range(2):
                await producer.send_and_wait(play.topic, b"open", partition=number)
            async with Admin(play.bootstrap) as admin:
                found = (await admin.describe_transactions([play.transactional_id]))[play.transactional_id]
                assert (found.state, found.timeout_ms, found.producer_epoch) == ("Ongoing", 90_000, 0)
                assert found.partitions == (play.partition(0), play.partition(1))
                assert found.start_timestamp > 0
                listed = await admin.list_transactions(states=["Ongoing"], producer_ids=[found.producer_id])
                assert [row.transactional_id for row in listed] == [play.transactional_id]
                assert listed[0].coordinator == found.coordinator
                assert await admin.list_transactions(producer_ids=[found.producer_id], min_duration_ms=3_600_000) == []
                with pytest.raises(ConfigError, match="Sleeping is not a state"):
                    await admin.list_transactions(states=["Sleeping"])
                (active,) = (await admin.describe_producers([play.partition()]))[play.partition()]
                assert (active.producer_id, active.producer_epoch) == (found.producer_id, 0)
                assert active.transaction_start_offset == 0
                # The coordinator knows the transaction, so it does not hang.
                partitions = [play.partition(0), play.partition(1)]
                assert await admin.find_hanging_transactions(partitions, open_for_ms=0) == []

            output = await asyncio.to_thread(command, play, "list", "--state", "ongoing")
            assert play.transactional_id in output
            output = await asyncio.to_thread(command, play, "describe", play.transactional_id)
            assert re.search(rf"{play.topic} +0,1", output)
            output = await asyncio.to_thread(command, play, "describe", play.transactional_id, "--output", "json")
            assert json.loads(output)[0]["state"] == "Ongoing"
            await producer.abort_transaction()

    asyncio.run(main())
    output = command(play, "describe", "nobody", code=1)
    assert "`odradek transaction list` shows the transactional ids." in output


def test_a_producer_can_be_fenced(play: Play) -> None:
    async def main() -> None:
        await play.create()
        async with play.producer() as producer, Admin(play.bootstrap) as admin:
            producer.begin_transaction()
            await producer.send_and_wait(play.topic, b"aborted")
            await admin.fence_producers([play.transactional_id])
            assert await play.committed() == []
            with pytest.raises(ProducerFencedError):
                await producer.commit_transaction()

    asyncio.run(main())


def test_a_hanging_transaction_is_found_and_aborted(play: Play) -> None:
    asyncio.run(hang(play))
    found = json.loads(command(play, "find-hanging", "--topic", play.topic, "--open-for-ms", "0", "--output", "json"))
    assert [(row["topic"], row["partition"], row["start_offset"]) for row in found] == [(play.topic, 0, 0)]
    assert found[0]["transactional_id"] == play.transactional_id
    assert command(play, "find-hanging", "--topic", play.topic).strip() == "No transaction hangs."
    place = ("--topic", play.topic, "--partition", "0")
    assert "no open transaction" in command(play, "abort", *place, "--start-offset", "7", "--yes", code=1)
    assert "was aborted" in command(play, "abort", *place, "--start-offset", "0", "--yes")
    assert command(play, "find-hanging", "--open-for-ms", "0").strip() == "No transaction hangs."
    assert asyncio.run(play.committed()) == []


async def hang(play: Play) -> None:
    """Send a batch without adding its partition to the transaction, and crash."""
    await play.create(leader=TRUSTING)
    async with play.crashing_producer() as producer:
        producer.begin_transaction()
        transactions = producer._sender.transactions
        assert transactions is not None
        transactions.machine.partitions_added([play.partition()])
        await producer.send_and_wait(play.topic, b"hanging", partition=0)


def test_the_blocking_admin_client_describes_transactions(play: Play) -> None:
    asyncio.run(play.create())
    settings = play.settings(transactional_id=play.transactional_id)
    with BlockingClient(settings) as client, client.producer() as producer:
        producer.init_transactions()
        found = client.admin.describe_transactions([play.transactional_id])[play.transactional_id]
        assert (found.state, found.partitions, found.start_timestamp) == ("Empty", (), -1)
