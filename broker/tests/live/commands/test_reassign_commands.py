"""`odradek reassign` and `odradek elect` with three brokers: a broker is drained, and the throttle is removed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from odradek import (
    BlockingClient,
    BlockingConsumer,
    ConfigResource,
    NewTopic,
    PartitionDescription,
    TopicPartition,
)
from odradek.cli.main import cli
from odradek.cli.reassign.throttles import LISTS, RATES
from odradek.client.admin_kinds import ConfigSource
from odradek.testing.plugin import ClusterFactory
from odradek.testing.running_cluster import RunningCluster
from odradek.testing.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.slow]

RECORDS = 900
RECORD_BYTES = 10_000
"""Each partition is larger than one fetch, which always passes a throttle."""


@pytest.fixture
def cluster(odradek_cluster_factory: ClusterFactory) -> RunningCluster:
    return odradek_cluster_factory(racks=("a", "b", "c"))


class Commands:
    """Runs commands in this process."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(cli, arguments, env={"ODRADEK_BOOTSTRAP_SERVER": self._bootstrap})

    def text(self, *arguments: str) -> str:
        result = self.run(*arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    def value(self, *arguments: str) -> Any:
        return json.loads(self.text(*arguments, "-o", "json"))


def replicas_of(client: BlockingClient, topic: str) -> list[tuple[int, ...]]:
    return [part.replicas for part in client.admin.describe_topics([topic])[topic].partitions]


def throttle_settings(client: BlockingClient, brokers: list[int]) -> dict[str, str | None]:
    """Return the settings of the throttle that are set for the topic or a broker."""
    resources = [ConfigResource.topic("t"), *map(ConfigResource.broker, brokers)]
    found = client.admin.describe_configs(resources, keys=[*RATES, *LISTS])
    return {
        f"{resource.name} {entry.name}": entry.value
        for resource, entries in found.items()
        for entry in entries.values()
        if entry.source in (ConfigSource.TOPIC_CONFIG, ConfigSource.DYNAMIC_BROKER_CONFIG)
    }


def test_a_broker_is_drained_with_a_throttle(cluster: RunningCluster, tmp_path: Path) -> None:
    odradek = Commands(cluster.bootstrap)
    plan, before = tmp_path / "plan.json", tmp_path / "before.json"
    with BlockingClient(cluster.bootstrap) as client:
        # Broker 2 keeps as many replicas as the others. Otherwise the operator would move some to it.
        rest = NewTopic(name="rest", assignments=((2,),) * 3)
        client.admin.create_topics([NewTopic(name="t", assignments=((2, 0), (0, 1), (1, 2))), rest])
        with client.producer() as producer:
            for number in range(RECORDS):
                producer.send("t", b"%d" % number + b"." * RECORD_BYTES, partition=number % 3)

        options = ("reassign", "plan", "--topic", "t", "--decommission", "2")
        text = odradek.text(*options, "--file", str(plan), "--rollback-file", str(before))
        assert "2 partitions change, 2 replicas are copied" in text
        targets = {row["partition"]: row["replicas"] for row in json.loads(plan.read_text())["partitions"]}
        assert targets == {0: [1, 0], 2: [1, 0]}
        assert odradek.value(*options) == json.loads(plan.read_text())
        assert {row["partition"]: row["replicas"] for row in json.loads(before.read_text())["partitions"]} == {
            0: [2, 0],
            2: [1, 2],
        }

        assert "2 partitions has begun" in odradek.text("reassign", "start", str(plan), "--throttle", "1")
        settings = throttle_settings(client, [0, 1, 2])
        assert settings["t leader.replication.throttled.replicas"] == "0:2,0:0,2:1,2:2"
        assert settings["t follower.replication.throttled.replicas"] == "0:1,2:0"
        assert settings["2 leader.replication.throttled.rate"] == "1"
        wait_until(lambda: len(odradek.value("reassign", "list")) == 2, what="reassignments in progress")
        listed = {move["partition"]: move for move in odradek.value("reassign", "list")}
        assert (listed[0]["adding"], listed[0]["removing"]) == ([1], [2])
        assert listed[0]["totalBytes"] > RECORDS / 3 * RECORD_BYTES
        refused = odradek.run("reassign", "start", str(before))
        assert refused.exit_code == 1
        assert "use --additional" in refused.output

        assert odradek.value("reassign", "cancel", "--topic", "other", "--yes") == []
        cancelled = odradek.value("reassign", "cancel", "--yes")
        assert [row["partition"] for row in cancelled] == [0, 2]
        wait_until(lambda: odradek.value("reassign", "list") == [], what="the end of the reassignments")
        # As in Kafka, the old replicas are those that were not added, in the order of the reassignment.
        assert replicas_of(client, "t") == [(0, 2), (0, 1), (1, 2)]
        wait_until(lambda: throttle_settings(client, [0, 1, 2]) == {}, what="the end of the throttle")

        odradek.text("reassign", "start", str(plan), "--throttle", "100000000")
        watched = odradek.text("reassign", "watch", "--interval", "100")
        assert watched.endswith("The throttle was removed.\n")
        wait_until(lambda: replicas_of(client, "t") == [(1, 0), (0, 1), (1, 0)], what="the new replicas")
        wait_until(lambda: throttle_settings(client, [0, 1, 2]) == {}, what="the end of the throttle")
        assert odradek.text("reassign", "watch") == "No reassignment is in progress.\n"
        assert odradek.text("reassign", "start", str(plan)) == "All replicas are where the plan wants them.\n"

        odradek.text("reassign", "start", str(before))
        (*_, last) = odradek.text("reassign", "watch", "-o", "json").splitlines()
        assert json.loads(last)["done"] == json.loads(last)["partitions"]
        wait_until(lambda: replicas_of(client, "t") == [(2, 0), (0, 1), (1, 2)], what="the old replicas")
    with BlockingConsumer(cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("t", number) for number in range(3)])
        values: list[int] = []
        while len(values) < RECORDS:
            for records in consumer.getmany(timeout_ms=1000).values():
                values += [int(record.value.split(b".", 1)[0]) for record in records if record.value is not None]
        assert sorted(values) == list(range(RECORDS))


def test_wrong_plans_and_brokers_are_named(cluster: RunningCluster, tmp_path: Path) -> None:
    odradek = Commands(cluster.bootstrap)
    odradek.text("topic", "create", "t", "-p", "1", "-r", "3")
    file = tmp_path / "plan.json"
    for row, words in (
        ({"topic": "t", "partition": 7, "replicas": [0]}, "that do not exist: t-7"),
        ({"topic": "t", "partition": 0, "replicas": [9]}, "broker 9, which is not alive"),
        ({"topic": "none", "partition": 0, "replicas": [0]}, "there is no topic none"),
    ):
        file.write_text(json.dumps({"version": 1, "partitions": [row]}))
        result = odradek.run("reassign", "start", str(file))
        assert (result.exit_code, words in result.output) == (1, True), result.output
    needed = odradek.run("reassign", "plan", "--topic", "t", "--decommission", "2")
    assert "t-0 needs 3 brokers, but only 2 may hold replicas" in needed.output
    absent = odradek.run("reassign", "plan", "--broker", "5")
    assert "broker 5, which is not alive" in absent.output


def test_leaders_are_elected_and_failures_have_a_reason(cluster: RunningCluster) -> None:
    odradek = Commands(cluster.bootstrap)
    with BlockingClient(cluster.bootstrap) as client:
        single = NewTopic(name="single", assignments=((2,),))
        client.admin.create_topics([NewTopic(name="t", assignments=((2, 0),)), single])

        def part(topic: str) -> PartitionDescription:
            return client.admin.describe_topics([topic])[topic].partitions[0]

        wait_until(lambda: part("t").leader == 2 and part("single").leader == 2, what="the leaders")
        (unneeded,) = odradek.value("elect", "preferred", "--topic", "t", "--partition", "0")
        assert (unneeded["elected"], unneeded["needed"], unneeded["error"]) == (False, False, None)
        cluster.stop_broker(2)
        wait_until(lambda: part("t").leader == 0, what="another leader")
        failed = odradek.run("elect", "preferred", "--topic", "t")
        assert failed.exit_code == 1
        assert "Not elected: no leader was elected for t-0" in failed.output
        refused = odradek.run("elect", "unclean", "--topic", "single", "--partition", "0", "--yes", "-o", "json")
        assert refused.exit_code == 1
        assert [row["elected"] for row in json.loads(refused.stdout)] == [False]
        cluster.start_broker(2)
        wait_until(lambda: set(part("t").isr) == {0, 2}, what="both replicas in sync")
        elected = odradek.text("elect", "preferred", "--topic", "t", "--partition", "0")
        assert elected == "Leaders were elected for t-0.\n"
        wait_until(lambda: part("t").leader == 2, what="the preferred leader")
