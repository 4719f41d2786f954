"""Replicas move between log directories while records are appended, and records are deleted, with standard clients."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import confluent_kafka
import confluent_kafka.admin
import pytest

from odradek.testing.running_cluster import RunningCluster
from odradek.testing.waiting import wait_until

if TYPE_CHECKING:
    import kafka.admin

pytestmark = [
    pytest.mark.java,
    pytest.mark.slow,
    # kafka-python reads its schemas with functions of importlib that Python 3.11 deprecated and 3.13 restored.
    pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning"),
]

SECONDS = 90
BROKERS = (0, 1, 2)
SEGMENT_BYTES = 256 << 10
RECORDS_AROUND = 1000
"""Number of records before a move, and of records after it."""
VALUE_BYTES = 500


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Three brokers with two log directories each, and with short delays of deletions."""
    cluster = RunningCluster(
        tmp_path_factory.mktemp("cluster"),
        brokers=len(BROKERS),
        volumes=2,
        config={
            "log.initial.task.delay.ms": 500,
            "log.retention.check.interval.ms": 500,
            "log.segment.delete.delay.ms": 500,
        },
    )
    cluster.start()
    yield cluster
    cluster.close()


class Writer:
    """Sends numbered records with acks=all from a thread until it is stopped."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.size": SEGMENT_BYTES // 4,
            }
        )
        self._topic = topic
        self._stopped = threading.Event()
        self.acknowledged: list[int] = []
        self.errors: list[Any] = []
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        number = 0
        while not self._stopped.is_set():
            value = b"%0*d" % (VALUE_BYTES, number)
            self._producer.produce(self._topic, value, partition=0, on_delivery=self._delivered(number))
            number += 1
            self._producer.poll(0.001)
        self._producer.flush(SECONDS)

    def _delivered(self, number: int) -> Callable[[Any, Any], None]:
        def note(error: Any, message: Any) -> None:
            if error is None:
                self.acknowledged.append(number)
            else:
                self.errors.append(error)

        return note

    def more(self) -> None:
        """Return when some more records are acknowledged."""
        target = len(self.acknowledged) + RECORDS_AROUND
        wait_until(lambda: len(self.acknowledged) >= target, what="progress of the producer")

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(2 * SECONDS)


@pytest.fixture
def admin(cluster: RunningCluster) -> Iterator[kafka.admin.KafkaAdminClient]:
    import kafka.admin

    client = kafka.admin.KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    yield client
    client.close()


def make_topic(cluster: RunningCluster) -> str:
    topic = f"moving-{uuid4().hex[:8]}"
    client = confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.bootstrap})
    config = {"segment.bytes": str(SEGMENT_BYTES), "min.insync.replicas": "2"}
    client.create_topics([confluent_kafka.admin.NewTopic(topic, 1, 3, config=config)])[topic].result(SECONDS)
    return topic


def places(admin: kafka.admin.KafkaAdminClient, topic: str) -> dict[int, dict[str, bool]]:
    """Return, for each broker, the directories of the replica and whether it is still being moved there.

    Return nothing while a broker does not answer: the client notices a stopped broker only at its next request.
    """
    import kafka.errors

    try:
        brokers = admin.describe_log_dirs()
    except (kafka.errors.KafkaConnectionError, kafka.errors.NodeNotReadyError):
        return {}
    return {
        broker["broker"]: {
            directory["log_dir"]: partition["is_future_key"]
            for directory in broker["log_dirs"]
            for each in directory["topics"]
            if each["name"] == topic
            for partition in each["partitions"]
        }
        for broker in brokers
    }


def read_all(bootstrap: str, topic: str, count: int) -> list[int]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[int] = []
    while len(found) < count:
        messages = consumer.consume(min(count - len(found), 1000), timeout=SECONDS)
        assert messages, f"only {len(found)} of {count} records came"
        for message in messages:
            assert message.error() is None
            found.append(int(message.value() or b""))
    consumer.close()
    return found


def test_replicas_move_under_load_without_lost_records(
    cluster: RunningCluster, admin: kafka.admin.KafkaAdminClient
) -> None:
    topic = make_topic(cluster)
    with Writer(cluster.bootstrap, topic) as writer:
        writer.more()
        before = places(admin, topic)
        volumes = {
            broker["broker"]: [each["log_dir"] for each in broker["log_dirs"]] for broker in admin.describe_log_dirs()
        }
        targets = {}
        for broker_id in BROKERS:
            (here,) = before[broker_id]
            (targets[broker_id],) = set(volumes[broker_id]) - {here}
        answers = admin.alter_replica_log_dirs({(topic, 0, broker_id): path for broker_id, path in targets.items()})
        assert {error.errno for error in answers.values()} == {0}
        wanted = {broker_id: {path: False} for broker_id, path in targets.items()}
        wait_until(lambda: places(admin, topic) == wanted, what="the end of the moves")
        writer.more()
    assert not writer.errors
    assert writer.acknowledged == list(range(len(writer.acknowledged)))
    assert read_all(cluster.bootstrap, topic, len(writer.acknowledged)) == writer.acknowledged
    for broker_id in BROKERS:
        (old,) = before[broker_id]
        wait_until(
            lambda old=old: not [each for each in Path(old).iterdir() if each.name.startswith(topic)],  # type: ignore[misc]
            what="removal of the old log",
        )
    # After a restart, the broker finds the replica in the new directory.
    cluster.stop_broker(1)
    cluster.start_broker(1)
    wait_until(lambda: places(admin, topic) == wanted, what="the broker's return")
    assert {error.errno for error in admin.alter_replica_log_dirs({(topic, 0, 1): "/nowhere"}).values()} == {57}


def test_records_are_deleted_on_every_replica(cluster: RunningCluster, admin: kafka.admin.KafkaAdminClient) -> None:
    topic = make_topic(cluster)
    with Writer(cluster.bootstrap, topic) as writer:
        writer.more()
    end = len(writer.acknowledged)
    volumes = [Path(path) for broker in places(admin, topic).values() for path in broker]
    first = {path: min((path / f"{topic}-0").glob("*.log")).name for path in volumes}

    client = confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.bootstrap})
    cut = end - 10
    cut_at = confluent_kafka.TopicPartition(topic, 0, cut)
    (answer,) = client.delete_records([cut_at], request_timeout=SECONDS).values()
    assert answer.result(SECONDS).low_watermark == cut
    # The response arrived when the logs of all three replicas began there. Segments before are being deleted.
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "reader"})
    assert consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), SECONDS) == (cut, end)
    consumer.close()
    for path in volumes:
        wait_until(
            lambda path=path: min((path / f"{topic}-0").glob("*.log")).name > first[path],  # type: ignore[misc]
            what=f"removal of the segments in {path}",
        )

    import kafka

    partition = kafka.TopicPartition(topic, 0)
    found = admin.delete_records({partition: -1})
    assert found[partition]["low_watermark"] == end
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        cut_at = confluent_kafka.TopicPartition(topic, 0, end + 1)
        (answer,) = client.delete_records([cut_at], request_timeout=SECONDS).values()
        answer.result(SECONDS)
    assert refused.value.args[0].code() == confluent_kafka.KafkaError.OFFSET_OUT_OF_RANGE
