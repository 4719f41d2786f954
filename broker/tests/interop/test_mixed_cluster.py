"""Brokers of Apache Kafka 3.9.1 and our brokers in one cluster.

Each side follows the other's leaders and accepts the other's controller. A cluster under load moves from one side to
the other and back with the commands of the guide.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from odradek.base.errors import CoordinatorLoadInProgressError
from odradek.network.channel import Channel
from odradek.protocol.apis import ApiKey
from odradek.testing.waiting import wait_until
from odradek_testkit.broker_process import OdradekBroker
from odradek_testkit.interop.apache import ApacheBroker, jars
from odradek_testkit.interop.guides import Guide
from odradek_testkit.interop.kafka_logs import read_topic
from odradek_testkit.interop.numbered_load import NumberedLoad

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(600)]

VERSION: Final = "3.9.1"
GUIDE: Final = "docs/migrating-from-kafka.md"
PROTOCOLS: Final = ("2.7", "3.9")

JAVA: Final = (1, 2)
OURS: Final = (3, 4)
LOADED: Final = "orders"
GROUP_OFFSETS: Final = "__consumer_offsets"
EXERCISE_RECORDS: Final = 200

PROPERTIES: Final = {
    # Longer than any pause in the tests.
    "zookeeper.session.timeout.ms": "30000",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "2",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
}


class Cluster:
    """Java brokers and our brokers with one ensemble. Each is started and stopped by its id."""

    def __init__(self, guide: Guide, directory: Path, ensemble: str, brokers: Mapping[int, Any]) -> None:
        self.guide: Final = guide
        self.bootstrap: Final = ",".join(f"127.0.0.1:{broker.port}" for broker in brokers.values())
        guide.places |= {"$BOOTSTRAP": self.bootstrap, "$ZOOKEEPER": ensemble}
        self._directory = directory
        self._brokers = dict(brokers)
        self._all = [*brokers.values()]
        self._running: set[int] = set()
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        self._zookeeper = KazooClient(hosts=ensemble)

    def __enter__(self) -> Self:
        self._zookeeper.start()
        return self

    def __exit__(self, *error: object) -> None:
        for broker in self._all:
            broker.stop(kill=True)
        self._zookeeper.stop()
        self._zookeeper.close()

    def start(self, *ids: int) -> None:
        """Start brokers. Return when the metadata has all running brokers."""
        self._running |= {*ids}
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda number: self._brokers[number].start(), ids))
        wait_until(lambda: self._known() == self._running, what=f"brokers {self._running}")

    def stop(self, number: int) -> None:
        """Send SIGTERM. Return when the process has ended and the metadata does not have the broker."""
        self._running.discard(number)
        self._brokers[number].stop()
        wait_until(lambda: self._known() == self._running, what=f"the end of broker {number}")

    def replace(self, number: int, broker: Any) -> None:
        """Replace a broker by another one. Return when all replicas are in sync."""
        self.stop(number)
        self._brokers[number] = broker
        self._all.append(broker)
        self.start(number)
        wait_until(self._is_in_sync, what=f"ISRs with the new broker {number}")

    def _is_in_sync(self) -> bool:
        topics = self._admin.list_topics(timeout=30).topics.values()
        return all({*part.isrs} == {*part.replicas} for topic in topics for part in topic.partitions.values())

    def _known(self) -> set[int]:
        with suppress(KafkaException):
            metadata = self._admin.list_topics(timeout=10)
            return set(metadata.brokers) if metadata.controller_id >= 0 else set()
        return set()

    # Topics

    def create(self, topic: str, replicas: list[list[int]]) -> None:
        """Return when every replica is in sync."""
        new = NewTopic(topic, num_partitions=len(replicas), replica_assignment=replicas)
        self._admin.create_topics([new])[topic].result(60)
        self.wait_for_replicas({TopicPartition(topic, number): each for number, each in enumerate(replicas)})

    def delete(self, topic: str) -> None:
        """Return when no broker has a file of the topic."""
        self._admin.delete_topics([topic])[topic].result(60)
        wait_until(lambda: not self.hosts(topic), what=f"the end of the files of {topic}")

    def hosts(self, topic: str) -> set[int]:
        """Return the brokers that have a directory of a partition of the topic. Directories in deletion have other
        names."""
        return {
            number
            for number in self._brokers
            for path in self.data(number).glob(f"{topic}-*")
            if re.fullmatch(rf"{re.escape(topic)}-\d+", path.name)
        }

    def data(self, number: int) -> Path:
        """Return the log directory of a broker."""
        return self._directory / f"broker-{number}" / "data"

    def leaders(self, topic: str) -> dict[int, int]:
        """Return the leader of each partition."""
        partitions = self._admin.list_topics(topic, timeout=30).topics[topic].partitions
        return {number: partition.leader for number, partition in partitions.items()}

    def wait_for_replicas(self, wanted: Mapping[TopicPartition, Sequence[int]]) -> None:
        """Wait until the partitions have these replicas and all of them are in sync."""

        def are_there() -> bool:
            topics = self._admin.list_topics(timeout=30).topics
            return all(
                part.topic in topics
                and part.partition in topics[part.topic].partitions
                and topics[part.topic].partitions[part.partition].replicas == [*replicas]
                and {*topics[part.topic].partitions[part.partition].isrs} == {*replicas}
                for part, replicas in wanted.items()
            )

        wait_until(are_there, what=f"the replicas of {sorted({part.topic for part in wanted})}", seconds=120)

    # The controller

    def controller(self) -> int:
        """The id of the controller in ZooKeeper; -1 if there is none."""
        with suppress(NoNodeError):
            return int(json.loads(self._zookeeper.get("/controller")[0])["brokerid"])
        return -1

    def give_controller_to(self, side: tuple[int, ...]) -> None:
        """Move the controller to a side: the brokers of the other side are paused meanwhile, so that they are
        replaced."""
        with self._paused({*self._running} - {*side}):
            self.guide.run("zookeeper-shell.sh", "delete")
            wait_until(lambda: self.controller() in side, what=f"a controller among {side}")
        wait_until(
            lambda: self._admin.list_topics(timeout=10).controller_id in side, what="metadata with the new controller"
        )
        assert f'"brokerid":{self.controller()}' in self.guide.run("zookeeper-shell.sh", "get")

    @contextmanager
    def _paused(self, ids: Iterable[int]) -> Iterator[None]:
        pids = [self._brokers[number].pid for number in ids]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    # Producers

    def producer_ids(self) -> list[int]:
        """Return a new producer id of each running broker."""
        return [asyncio.run(_new_producer_id(self._brokers[number].port)) for number in sorted(self._running)]

    # Settings

    def throttles(self) -> list[str]:
        """Return the throttles of replication in the settings of topics and brokers in ZooKeeper."""
        names: list[str] = []
        for kind in ("topics", "brokers"):
            for entity in self._zookeeper.get_children(f"/config/{kind}"):
                config = json.loads(self._zookeeper.get(f"/config/{kind}/{entity}")[0])["config"]
                names += [f"{entity}: {name}" for name in config if "throttled" in name]
        return names

    def errors_of_ours(self) -> list[str]:
        """Return the errors in the logs of our brokers."""
        return [line for broker in self._all if isinstance(broker, OdradekBroker) for line in broker.errors()]


async def _new_producer_id(port: int) -> int:
    channel = await Channel.open("127.0.0.1", port)
    try:
        await channel.negotiate()
        version = channel.pick(ApiKey.INIT_PRODUCER_ID)
        asked = {"transactional_id": None, "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
        async with asyncio.timeout(60):
            while True:
                answer = await channel.ask(ApiKey.INIT_PRODUCER_ID, version, asked)
                # A Java broker responds with this error while it waits for a block of ids from the controller.
                if answer.error_code != CoordinatorLoadInProgressError.code:
                    break
    finally:
        await channel.close()
    assert answer.error_code == 0
    return int(answer.producer_id)


@pytest.fixture
def kafka(request: pytest.FixtureRequest) -> Path:
    """The jars of the last version that supports ZooKeeper."""
    return jars(VERSION, Path(request.config.rootpath) / ".interop")


@pytest.fixture
def guide(request: pytest.FixtureRequest, kafka: Path, tmp_path: Path) -> Guide:
    """The guide. The files of its commands are in the directory of the test."""
    return Guide((Path(request.config.rootpath) / GUIDE).read_text(encoding="utf-8"), kafka, tmp_path)


@pytest.fixture
def ensemble(odradek_zookeeper: str) -> str:
    """A place of the test's own in ZooKeeper."""
    place = f"mixed-{uuid4().hex[:8]}"
    client = KazooClient(hosts=odradek_zookeeper)
    client.start()
    client.create(f"/{place}")
    client.stop()
    client.close()
    return f"{odradek_zookeeper}/{place}"


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    """Each `inter.broker.protocol.version`."""
    return str(request.param)


def java_broker(kafka: Path, directory: Path, ensemble: str, number: int, protocol: str) -> ApacheBroker:
    properties = {**PROPERTIES, "inter.broker.protocol.version": protocol}
    settings: dict[str, Any] = {"properties": properties, "heap": "384m"}
    return ApacheBroker(kafka, directory, broker_id=number, zookeeper=ensemble, **settings)


def our_broker(
    guide: Guide, directory: Path, ensemble: str, number: int, protocol: str, *, port: int | None = None
) -> OdradekBroker:
    """Brokers with the sample properties of the guide, except addresses and directories."""
    own = {"broker.id", "broker.rack", "listeners", "advertised.listeners", "zookeeper.connect", "log.dirs"}
    sample = {name: value for name, value in guide.properties.items() if name not in own}
    assert own <= guide.properties.keys()
    assert sample.keys() == {"inter.broker.protocol.version"}
    # Java brokers and tools must ignore the machine in the registration.
    machine = {"broker.machine": f"machine-{number}"}
    properties = {**sample, **PROPERTIES, **machine, "inter.broker.protocol.version": protocol}
    return OdradekBroker(directory, zookeeper=ensemble, properties=properties, broker_id=number, port=port)


class Keeper:
    """A group with committed offsets and without members. The offsets exist as long as the group."""

    GROUP: Final = "keeper"
    OFFSETS: Final = (11, 22, 33, 44)

    def __init__(self, bootstrap: str) -> None:
        self._settings = {"bootstrap.servers": bootstrap, "log_level": 0, "group.id": self.GROUP}
        consumer = Consumer(self._settings)
        kept = [TopicPartition(LOADED, number, offset, "kept") for number, offset in enumerate(self.OFFSETS)]
        consumer.commit(offsets=kept, asynchronous=False)
        consumer.close()

    def check(self) -> None:
        """Check that the current coordinator has the offsets."""
        consumer = Consumer(self._settings)
        wanted = [TopicPartition(LOADED, number) for number in range(len(self.OFFSETS))]
        found: list[TopicPartition] = []

        def answers() -> bool:
            with suppress(KafkaException):
                found[:] = consumer.committed(wanted, timeout=10)
            return bool(found)

        wait_until(answers, what="the response of the coordinator")
        consumer.close()
        assert [(part.offset, part.metadata) for part in found] == [(offset, "kept") for offset in self.OFFSETS]


def exercise(cluster: Cluster, topic: str) -> None:
    """Create a topic with replicas on all four brokers and a leader on each, write and read it, and delete it."""
    replicas = [[1, 3, 2, 4], [3, 1, 4, 2], [2, 4, 1, 3], [4, 2, 3, 1]]
    cluster.create(topic, replicas)
    first = {number: each[0] for number, each in enumerate(replicas)}
    # Any broker may respond, and some may not know the topic yet.
    wait_until(lambda: cluster.leaders(topic) == first, what=f"the leaders of {topic}")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "compression.type": "lz4"})
    failures: list[object] = []
    for count in range(EXERCISE_RECORDS):
        for number in range(len(replicas)):
            producer.produce(
                topic, f"{count}", f"{number}", partition=number, on_delivery=lambda error, _: failures.append(error)
            )
    assert producer.flush(60) == 0
    assert failures == [None] * EXERCISE_RECORDS * len(replicas)
    cluster.wait_for_replicas({TopicPartition(topic, number): each for number, each in enumerate(replicas)})
    for number in range(len(replicas)):
        copies = {(cluster.data(broker) / f"{topic}-{number}" / f"{0:020}.log").read_bytes() for broker in JAVA + OURS}
        assert len(copies) == 1, "the replicas of all brokers are the same, byte for byte"
    found = read_topic(cluster.bootstrap, topic)
    assert [record["value"] for record in found] == [str(count) for count in range(EXERCISE_RECORDS)]
    cluster.delete(topic)


def plan(guide: Guide, topics: Sequence[str]) -> None:
    """Let Kafka's tool plan the move of topics to our brokers in `move.json`, and the move back in `back.json`."""
    wanted = {"version": 1, "topics": [{"topic": topic} for topic in topics]}
    guide.file("topics.json").write_text(json.dumps(wanted), encoding="utf-8")
    printed = guide.run("kafka-reassign-partitions.sh", "--generate")
    now, proposed = [line for line in printed.splitlines() if line.startswith("{")]
    for name, text in (("back.json", now), ("move.json", proposed)):
        assert {part["topic"] for part in json.loads(text)["partitions"]} == {*topics}
        guide.file(name).write_text(text, encoding="utf-8")


def move(cluster: Cluster, name: str) -> None:
    """Carry out a plan with the commands of the guide. Return when the old brokers have no file of the partitions."""
    guide = cluster.guide
    partitions = json.loads(guide.file(name).read_text())["partitions"]
    started = guide.run("kafka-reassign-partitions.sh", "--execute", name)
    assert "Successfully started partition reassignments" in started
    cluster.wait_for_replicas(
        {TopicPartition(part["topic"], part["partition"]): part["replicas"] for part in partitions}
    )

    def is_complete() -> bool:
        return guide.run("kafka-reassign-partitions.sh", "--verify", name).count("is completed.") == len(partitions)

    wait_until(is_complete, what="the end of the reassignments")
    assert "No partition reassignments found." in guide.run("kafka-reassign-partitions.sh", "--list")
    assert cluster.throttles() == []
    targets: dict[str, set[int]] = {}
    for part in partitions:
        targets.setdefault(part["topic"], set()).update(part["replicas"])
    wait_until(
        lambda: {topic: cluster.hosts(topic) for topic in targets} == targets, what=f"the files are on {targets}"
    )


def left_on_java(guide: Guide) -> list[str]:
    """Return the partitions that the Java brokers still have."""
    output = json.loads(guide.run("kafka-log-dirs.sh", "--broker-list").splitlines()[-1])
    assert sorted(broker["broker"] for broker in output["brokers"]) == [*JAVA]
    return [
        partition["partition"]
        for broker in output["brokers"]
        for directory in broker["logDirs"]
        for partition in directory["partitions"]
    ]


def test_a_cluster_under_load_moves_from_java_to_ours_and_back(
    kafka: Path, guide: Guide, ensemble: str, tmp_path: Path, protocol: str
) -> None:
    brokers: dict[int, Any] = {
        number: java_broker(kafka, tmp_path / f"broker-{number}", ensemble, number, protocol) for number in JAVA
    }
    brokers |= {number: our_broker(guide, tmp_path / f"broker-{number}", ensemble, number, protocol) for number in OURS}
    with Cluster(guide, tmp_path, ensemble, brokers) as cluster:
        cluster.start(*JAVA)
        assert len(guide.run("kafka-transactions.sh", "list").splitlines()) <= 1, "only a heading"
        cluster.create(LOADED, [[1, 2], [2, 1], [1, 2], [2, 1]])
        with NumberedLoad(cluster.bootstrap, LOADED, 4) as load:
            load.more()
            keeper = Keeper(cluster.bootstrap)
            cluster.start(*OURS)
            live_together(cluster, load)
            plan(guide, [LOADED, GROUP_OFFSETS])
            move(cluster, "move.json")
            load.more()
            keeper.check()
            retire_java(cluster, load)
            keeper.check()
            cluster.start(*JAVA)
            load.more()
            assert cluster.controller() in OURS
            # Java brokers have not allocated a block since their start.
            assert len({*cluster.producer_ids()}) == len(JAVA + OURS)
            move(cluster, "back.json")
            load.more()
            keeper.check()
            for number in OURS:
                cluster.stop(number)
            assert cluster.controller() in JAVA
            load.more()
            keeper.check()
        check(load, cluster)
        assert cluster.errors_of_ours() == []


def live_together(cluster: Cluster, load: NumberedLoad) -> None:
    """The mixed cluster with a Java controller, then with our controller, then with a Java controller again."""
    assert cluster.controller() in JAVA
    assert len({*cluster.producer_ids()}) == len(JAVA + OURS)
    exercise(cluster, "under-java")
    cluster.give_controller_to(OURS)
    exercise(cluster, "under-ours")
    load.more()
    cluster.give_controller_to(JAVA)
    load.more()
    output = cluster.guide.run("kafka-broker-api-versions.sh")
    assert {*re.findall(r"^\S+ \(id: (\d+) ", output, re.MULTILINE)} == {str(number) for number in JAVA + OURS}
    assert cluster.guide.run("kafka-topics.sh", "--under-replicated-partitions").strip() == ""


def retire_java(cluster: Cluster, load: NumberedLoad) -> None:
    """No replica is left on the Java brokers. They stop, and one of our brokers becomes the controller."""
    assert cluster.controller() in JAVA
    assert left_on_java(cluster.guide) == []
    for number in JAVA:
        cluster.stop(number)
        load.more()
    assert cluster.controller() in OURS


def check(load: NumberedLoad, cluster: Cluster) -> None:
    """Check that the consumer has read exactly the acknowledged records, in order."""
    assert load.wrong == []
    assert load.read == load.written
    for number, leader in cluster.leaders(LOADED).items():
        load.check_repeats(number, cluster.data(leader) / f"{LOADED}-{number}" / f"{0:020}.log")
    # The group exists after all changes of its coordinator, and its member was never removed.
    assert load.assignments == 1


def test_brokers_are_replaced_in_place_and_back(
    kafka: Path, guide: Guide, ensemble: str, tmp_path: Path, protocol: str
) -> None:
    originals = {
        number: java_broker(kafka, tmp_path / f"broker-{number}", ensemble, number, protocol) for number in JAVA
    }
    ports = {number: broker.port for number, broker in originals.items()}
    with Cluster(guide, tmp_path, ensemble, originals) as cluster:
        cluster.start(*JAVA)
        cluster.create(LOADED, [[1, 2], [2, 1], [1, 2], [2, 1]])
        with NumberedLoad(cluster.bootstrap, LOADED, 4) as load:
            load.more()
            keeper = Keeper(cluster.bootstrap)
            for number in JAVA:
                ours = our_broker(guide, tmp_path / f"broker-{number}", ensemble, number, protocol, port=ports[number])
                cluster.replace(number, ours)
                load.more()
                keeper.check()
            for number in JAVA:
                cluster.replace(number, originals[number])
                load.more()
                keeper.check()
        check(load, cluster)
        assert cluster.errors_of_ours() == []
