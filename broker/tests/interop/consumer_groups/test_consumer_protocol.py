"""Our consumer with `group.protocol=consumer` (KIP-848) in groups on Apache Kafka 4.1.0 and on our broker."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import confluent_kafka
import pytest
from click.testing import CliRunner

from odradek import (
    Admin,
    BlockingClient,
    ClientSettings,
    Consumer,
    NewTopic,
    Producer,
    SubscriptionPattern,
    TopicPartition,
)
from odradek.base.errors import (
    GroupIdNotFoundError,
    InvalidRegularExpressionError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
    UnsupportedVersionError,
)
from odradek.cli.main import cli
from odradek.testing.waiting import wait_until
from odradek_testkit.broker_process import OdradekBroker
from odradek_testkit.interop.apache import QUICK_START, ApacheBroker, KafkaProcess, KraftBroker, jars, java_command

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow]

VERSION: Final = "4.1.0"
OLD_VERSION: Final = "3.9.1"
PARTITIONS: Final = 6
PROPERTIES: Final = {
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.session.timeout.ms": "1000",
    "auto.create.topics.enable": "false",
}
WAIT_SECONDS: Final = 60.0


@pytest.fixture(scope="module")
def kafka(request: pytest.FixtureRequest) -> Path:
    """The jars of Apache Kafka."""
    return jars(VERSION, Path(request.config.rootpath) / ".interop")


def apache_broker(_request: pytest.FixtureRequest, directory: Path, kafka: Path) -> KafkaProcess | OdradekBroker:
    return KraftBroker(kafka, directory, properties=PROPERTIES, heap="384m")


def odradek_broker(request: pytest.FixtureRequest, directory: Path, _kafka: Path) -> KafkaProcess | OdradekBroker:
    ensemble = request.getfixturevalue("odradek_zookeeper")
    properties = {**PROPERTIES, "offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "3"}
    properties |= {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
    return OdradekBroker(directory, zookeeper=f"{ensemble}/groups-{uuid4().hex[:8]}", properties=properties)


BROKERS: Final = {"kafka": apache_broker, "odradek": odradek_broker}


@pytest.fixture(scope="module", params=sorted(BROKERS))
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, kafka: Path
) -> Iterator[KafkaProcess | OdradekBroker]:
    """A broker of each kind."""
    broker = BROKERS[request.param](request, tmp_path_factory.mktemp("consumer-groups"), kafka)
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


@pytest.fixture
def bootstrap(broker: KafkaProcess | OdradekBroker) -> str:
    """The address of the broker."""
    return f"127.0.0.1:{broker.port}"


class Reader:
    """A member of the group, which polls until it is closed. Remembers its records and events."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer: Final = consumer
        self.values: list[bytes] = []
        self.events: list[tuple[str, int]] = []
        self.errors: list[Exception] = []
        self._killed = False
        self._polling = asyncio.Event()
        self._polling.set()
        self._task = asyncio.ensure_future(self._poll())

    async def _poll(self) -> None:
        while True:
            await self._polling.wait()
            try:
                found = await self.consumer.getmany(timeout_ms=100)
            except UnknownMemberIdError as error:
                self.errors.append(error)
                continue
            self.values += [record.value or b"" for records in found.values() for record in records]

    async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.events.append(("revoked", len(partitions)))

    async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.events.append(("assigned", len(partitions)))

    async def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.events.append(("lost", len(partitions)))

    @property
    def size(self) -> int:
        return len(self.consumer.assignment())

    def pause(self) -> None:
        """Stop polling."""
        self._polling.clear()

    def resume(self) -> None:
        """Poll again."""
        self._polling.set()

    async def stop(self) -> None:
        """Stop polling for good. Raises what the task raised."""
        if self._task.done() and not self._task.cancelled():
            self._task.result()
        self._task.cancel()
        await asyncio.wait({self._task})

    async def close(self) -> None:
        """Leave the group. Idempotent; does nothing after `kill`."""
        await self.stop()
        if not self._killed:
            await self.consumer.close()

    async def kill(self) -> None:
        """End without leaving the group."""
        self._killed = True
        await self.stop()
        await self.consumer._shut_down()


class Play:
    """A topic and a group of one test."""

    def __init__(self, bootstrap: str) -> None:
        tag = uuid4().hex[:8]
        self.bootstrap: Final = bootstrap
        self.topic: Final = f"topic-{tag}"
        self.group: Final = f"group-{tag}"
        self._stack = AsyncExitStack()
        self._readers: list[Reader] = []

    @classmethod
    @asynccontextmanager
    async def on(cls, bootstrap: str) -> AsyncIterator[Play]:
        """Yield an object whose topic exists. Closes all members afterwards."""
        play = cls(bootstrap)
        await play.create(play.topic)
        try:
            yield play
        finally:
            for reader in play._readers:
                await reader.close()

    async def create(self, *topics: str) -> None:
        async with Admin(self.bootstrap) as admin:
            await admin.create_topics(
                [NewTopic(name=topic, partitions=PARTITIONS, replication_factor=1) for topic in topics]
            )

    async def send(self, first: int, count: int) -> None:
        """Send numbered records, in turn to each partition."""
        async with Producer(self.bootstrap) as producer:
            for number in range(first, first + count):
                await producer.send(self.topic, b"%d" % number, partition=number % PARTITIONS)
            await producer.flush()

    def settings(self, **changes: Any) -> ClientSettings:
        values = {"group_id": self.group, "group_protocol": "consumer", "auto_offset_reset": "earliest", **changes}
        return ClientSettings.of(self.bootstrap, **values)

    async def join(self, *, pattern: SubscriptionPattern | None = None, **changes: Any) -> Reader:
        """Return a new member that polls, by default for the topic."""
        consumer = Consumer(self.settings(**changes))
        await consumer.start()
        reader = Reader(consumer)
        consumer.subscribe([self.topic] if pattern is None else [], pattern=pattern, listener=reader)
        self._readers.append(reader)
        return reader

    async def described(self) -> Any:
        async with Admin(self.bootstrap) as admin:
            return (await admin.describe_consumer_groups([self.group]))[self.group]


async def until(condition: Callable[[], bool], what: str) -> None:
    """Return when the condition is true."""
    await asyncio.to_thread(wait_until, condition, what=what, seconds=WAIT_SECONDS)


def run(bootstrap: str, scenario: Callable[[Play], Awaitable[None]]) -> None:
    async def main() -> None:
        async with Play.on(bootstrap) as play:
            await scenario(play)

    asyncio.run(main())


def numbers(*readers: Reader) -> list[int]:
    return sorted(int(value) for reader in readers for value in reader.values)


def test_a_group_grows_and_shrinks_and_reads_each_record_once(bootstrap: str) -> None:
    async def scenario(play: Play) -> None:
        await play.send(0, 60)
        first = await play.join()
        await until(lambda: numbers(first) == list(range(60)), "the first records")
        assert first.events == [("assigned", PARTITIONS)]
        second = await play.join()
        await until(lambda: (first.size, second.size) == (3, 3), "two members")
        # The first member has only given up what the second one got.
        assert [each for each in first.events if each[0] == "revoked"] == [("revoked", 3)]
        await play.send(60, 60)
        await until(lambda: numbers(first, second) == list(range(120)), "records of both")
        third = await play.join()
        await until(lambda: (first.size, second.size, third.size) == (2, 2, 2), "three members")
        await second.close()
        await until(lambda: (first.size, third.size) == (3, 3), "two members again")
        await play.send(120, 60)
        await until(lambda: numbers(first, second, third) == list(range(180)), "all records")
        assert {kind for reader in (first, second, third) for kind, _ in reader.events} == {"assigned", "revoked"}

    run(bootstrap, scenario)


def test_a_group_is_described_with_epochs_and_assignments(bootstrap: str) -> None:
    async def scenario(play: Play) -> None:
        first, second = await play.join(client_rack="r1"), await play.join(group_instance_id="two")
        await until(lambda: (first.size, second.size) == (3, 3), "two members")
        # The last heartbeats may not have acknowledged their assignments yet.
        with BlockingClient(play.bootstrap) as client:
            await until(
                lambda: client.admin.describe_groups([play.group])[play.group].state == "Stable", "a stable group"
            )
        async with Admin(play.bootstrap) as admin:
            group = await play.described()
            assert group.group_epoch == group.assignment_epoch
            assert {member.member_epoch for member in group.members} == {group.group_epoch}
            assert {member.member_id for member in group.members} == {
                first.consumer.membership.member_id,
                second.consumer.membership.member_id,
            }
            for member in group.members:
                assert member.assignment == member.target_assignment
                assert member.subscribed_topics == (play.topic,)
                assert member.is_classic is False
            assert {member.rack_id for member in group.members} == {"r1", None}
            assert {member.group_instance_id for member in group.members} == {"two", None}
            described = (await admin.describe_groups([play.group]))[play.group]
            assert (described.group_type, described.protocol, len(described.members)) == ("consumer", "uniform", 2)
            listed = {each.group_id: each for each in await admin.list_groups()}[play.group]
            assert (listed.group_type.lower(), listed.state, listed.protocol_type) == ("consumer", "Stable", "consumer")
            with pytest.raises(GroupIdNotFoundError):
                await admin.describe_consumer_groups(["nobody"])
        command = ["group", "describe", play.group, "--members", "--bootstrap-server", play.bootstrap]
        shown = await asyncio.to_thread(CliRunner().invoke, cli, command)
        assert shown.exit_code == 0, shown.output
        assert all(f"{play.topic}:{numbers}" in shown.output for numbers in ("0,1,2", "3,4,5"))

    run(bootstrap, scenario)


def test_a_killed_member_loses_its_partitions_to_the_others(bootstrap: str) -> None:
    async def scenario(play: Play) -> None:
        first, second = await play.join(), await play.join()
        await until(lambda: (first.size, second.size) == (3, 3), "two members")
        await second.kill()
        await play.send(0, 60)
        await until(lambda: first.size == PARTITIONS, "the end of the session")
        await until(lambda: numbers(first) == list(range(60)), "all records")

    run(bootstrap, scenario)


def test_a_member_that_is_not_polled_leaves_and_joins_again(bootstrap: str) -> None:
    async def scenario(play: Play) -> None:
        first, second = await play.join(), await play.join(max_poll_interval_ms=2_000)
        await until(lambda: (first.size, second.size) == (3, 3), "two members")
        second.pause()
        await until(lambda: first.size == PARTITIONS, "the other member alone")
        second.resume()
        await until(lambda: (first.size, second.size) == (3, 3), "two members again")
        assert ("lost", 3) in second.events
        await play.send(0, 60)
        await until(lambda: numbers(first, second) == list(range(60)), "all records")

    run(bootstrap, scenario)


def test_a_static_member_returns_without_a_rebalance(bootstrap: str) -> None:
    async def scenario(play: Play) -> None:
        first = await play.join(group_instance_id="one")
        second = await play.join(group_instance_id="two")
        await until(lambda: (first.size, second.size) == (3, 3), "two members")
        had, events = second.consumer.assignment(), list(first.events)
        async with Consumer(play.settings(group_instance_id="two"), play.topic) as third:
            with pytest.raises(UnreleasedInstanceIdError, match=r"group\.instance\.id=two"):
                await third.getmany(timeout_ms=30_000)
        await second.close()
        returned = await play.join(group_instance_id="two")
        await until(lambda: returned.consumer.assignment() == had, "the same partitions")
        assert first.events == events

    run(bootstrap, scenario)


def test_committed_offsets_are_continued(bootstrap: str) -> None:
    async def scenario(play: Play) -> None:
        await play.send(0, 60)
        first = await play.join(enable_auto_commit=False)
        await until(lambda: len(first.values) == 60, "the first records")
        await first.consumer.commit()
        await first.close()
        await play.send(60, 6)
        second = await play.join()
        await until(lambda: numbers(second) == list(range(60, 66)), "the next records")

    run(bootstrap, scenario)


def test_members_continue_after_a_restart_of_the_coordinator(
    broker: KafkaProcess | OdradekBroker, bootstrap: str
) -> None:
    async def scenario(play: Play) -> None:
        first, second = await play.join(), await play.join()
        await until(lambda: (first.size, second.size) == (3, 3), "two members")
        await play.send(0, 60)
        await until(lambda: numbers(first, second) == list(range(60)), "the first records")
        before = [*first.events, *second.events]
        await asyncio.to_thread(broker.stop)
        await asyncio.to_thread(broker.start)
        await play.send(60, 60)
        await until(lambda: numbers(first, second) == list(range(120)), "all records")
        await first.consumer.commit()
        assert [*first.events, *second.events] == before

    run(bootstrap, scenario)


def test_offsets_are_committed_in_a_transaction_of_the_member(bootstrap: str) -> None:
    async def scenario(play: Play) -> None:
        await play.send(0, 6)
        first = await play.join(enable_auto_commit=False)
        await until(lambda: len(first.values) == 6, "the records")
        settings = ClientSettings.of(bootstrap, transactional_id=f"producer-{play.group}")
        partition = TopicPartition(play.topic, 0)
        async with Producer(settings) as producer:
            await producer.init_transactions()
            async with producer.transaction():
                await producer.send_offsets_to_transaction({partition: 1}, first.consumer.group_metadata())
        found = await first.consumer.committed(partition)
        assert found is not None
        assert found.offset == 1

    run(bootstrap, scenario)


def test_a_change_of_the_subscription_moves_only_the_topics(bootstrap: str) -> None:
    async def scenario(play: Play) -> None:
        other = f"{play.topic}-other"
        first = await play.join()
        await until(lambda: first.size == PARTITIONS, "the first topic")
        first.consumer.subscribe([play.topic, other])
        await play.create(other)
        await until(lambda: first.size == 2 * PARTITIONS, "both topics")
        first.consumer.subscribe([other])
        await until(lambda: first.consumer.assignment() == {TopicPartition(other, n) for n in range(6)}, "one topic")
        assert ("revoked", PARTITIONS) in first.events

    run(bootstrap, scenario)


def test_brokers_resolve_regular_expressions(bootstrap: str) -> None:
    async def scenario(play: Play) -> None:
        other = f"{play.topic}-other"
        first = await play.join(pattern=SubscriptionPattern(f"{play.topic}.*"))
        await until(lambda: first.size == PARTITIONS, "the first topic")
        assert (await play.described()).members[0].subscribed_regex == f"{play.topic}.*"
        await play.send(0, 6)
        await until(lambda: len(first.values) == 6, "the records")
        await play.create(other)
        first.consumer.subscribe(pattern=SubscriptionPattern(f"(none|{play.topic}-ot.*)"))
        await until(lambda: first.consumer.assignment() == {TopicPartition(other, n) for n in range(6)}, "one topic")
        async with Consumer(play.settings()) as consumer:
            consumer.subscribe(pattern=SubscriptionPattern("("))
            with pytest.raises(InvalidRegularExpressionError, match="syntax of RE2"):
                await consumer.getmany(timeout_ms=30_000)

    run(bootstrap, scenario)


def test_an_unknown_assignor_is_refused(bootstrap: str) -> None:
    async def scenario(play: Play) -> None:
        async with Consumer(play.settings(group_remote_assignor="best"), play.topic) as consumer:
            with pytest.raises(UnsupportedAssignorError, match=r"group\.remote\.assignor=best"):
                await consumer.getmany(timeout_ms=30_000)

    run(bootstrap, scenario)


@contextmanager
def java_member(kafka: Path, play: Play, output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a Java consumer, which writes the values of its records to a file."""
    command = [
        *java_command(kafka, "org.apache.kafka.tools.consumer.ConsoleConsumer", heap="128m", options=QUICK_START),
        *("--bootstrap-server", play.bootstrap, "--topic", play.topic, "--group", play.group),
        *("--consumer-property", "group.protocol=consumer", "--consumer-property", "auto.offset.reset=earliest"),
    ]
    with output.open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(timeout=60)


async def poll_librdkafka(consumer: confluent_kafka.Consumer, values: list[bytes]) -> None:
    while True:
        message = await asyncio.to_thread(consumer.poll, 0.1)
        if message is not None and message.error() is None:
            values.append(message.value() or b"")


def test_clients_of_three_kinds_share_a_group(bootstrap: str, kafka: Path, tmp_path: Path) -> None:
    output = tmp_path / "java.txt"

    def java_numbers() -> list[int]:
        return [int(line) for line in output.read_text().split("\n")[:-1]] if output.exists() else []

    async def scenario(play: Play) -> None:
        ours = await play.join()
        await until(lambda: ours.size == PARTITIONS, "our member")
        theirs = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": play.group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
            }
        )
        theirs.subscribe([play.topic])
        values: list[bytes] = []
        polling = asyncio.ensure_future(poll_librdkafka(theirs, values))
        try:
            with java_member(kafka, play, output):
                await until(lambda: (ours.size, len(theirs.assignment())) == (2, 2), "three members")
                assert len((await play.described()).members) == 3
                await play.send(0, 60)
                await until(
                    lambda: sorted([*numbers(ours), *map(int, values), *java_numbers()]) == list(range(60)),
                    "all records",
                )
                assert len(java_numbers()) == len(values) == len(ours.values) == 20
            await until(lambda: (ours.size, len(theirs.assignment())) == (3, 3), "two members")
        finally:
            polling.cancel()
            await asyncio.wait({polling})
            theirs.close()
        await until(lambda: ours.size == PARTITIONS, "our member alone")

    run(bootstrap, scenario)


def test_a_broker_without_the_protocol_is_reported_with_advice(
    request: pytest.FixtureRequest, tmp_path: Path, odradek_zookeeper: str
) -> None:
    """Apache Kafka in ZooKeeper mode has the request in its table, but does not serve it."""

    async def scenario(play: Play) -> None:
        async with Consumer(play.settings(), play.topic) as consumer:
            with pytest.raises(UnsupportedVersionError, match=r"Set group\.protocol=classic"):
                await consumer.getmany(timeout_ms=30_000)
        async with Consumer(play.settings(group_protocol="classic"), play.topic) as consumer:
            while not consumer.assignment():
                await consumer.getmany(timeout_ms=1_000)
            async with Admin(play.bootstrap) as admin:
                group = (await admin.describe_groups([play.group]))[play.group]
                assert (group.group_type, group.protocol_type) == ("classic", "consumer")

    old = ApacheBroker(
        jars(OLD_VERSION, Path(request.config.rootpath) / ".interop"),
        tmp_path,
        broker_id=1,
        zookeeper=f"{odradek_zookeeper}/old-{uuid4().hex[:8]}",
        properties={"offsets.topic.replication.factor": "1", "group.initial.rebalance.delay.ms": "0"},
        heap="256m",
        options=QUICK_START,
    )
    try:
        old.start()
        run(f"127.0.0.1:{old.port}", scenario)
    finally:
        old.stop()
