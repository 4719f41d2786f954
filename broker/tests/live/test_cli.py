"""The command line with a real cluster, as a person or a script uses it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from odradek.testing.running_cluster import RunningCluster
from odradek.testing.waiting import wait_until

pytestmark = pytest.mark.java

Result = subprocess.CompletedProcess[str]
Odradek = Callable[..., Result]


@pytest.fixture
def odradek(odradek_cluster: RunningCluster) -> Odradek:
    """Runs a command. The environment has the bootstrap servers."""

    def run(*arguments: str, stdin: str = "") -> Result:
        return subprocess.run(
            [sys.executable, "-m", "odradek.cli.main", *arguments],
            input=stdin,
            env={**os.environ, "ODRADEK_BOOTSTRAP_SERVER": odradek_cluster.bootstrap},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.fixture
def topic(odradek: Odradek, odradek_cluster: RunningCluster) -> Iterator[str]:
    name = f"cli-{uuid4().hex}"
    assert odradek("topic", "create", name, "-p", "2", "-r", "3", "-c", "retention.ms=-1").returncode == 0
    wait_until(lambda: has_leaders(odradek, name), what="leaders of every partition")
    # Each command may use another broker, and the brokers learn of the topic at different times.
    wait_until(lambda: is_known_everywhere(odradek_cluster, name), what="the topic on every broker")
    yield name
    odradek("topic", "delete", name, "--if-exists")


def is_known_everywhere(cluster: RunningCluster, name: str) -> bool:
    """Return whether the metadata of every broker has the topic and its leaders."""

    def answers(address: str) -> bool:
        topics = AdminClient({"bootstrap.servers": address}).list_topics(timeout=60).topics
        return name in topics and all(part.leader >= 0 for part in topics[name].partitions.values())

    return all(answers(address) for address in cluster.bootstrap.split(","))


def has_leaders(odradek: Odradek, name: str) -> bool:
    result = odradek("topic", "describe", name, "-o", "json")
    if result.returncode != 0:
        return False
    (described,) = json.loads(result.stdout)
    return len(described["partitions"]) == 2 and all(part["leader"] >= 0 for part in described["partitions"])


def as_json(result: Result) -> Any:
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_topics_are_created_listed_described_and_deleted(odradek: Odradek, topic: str) -> None:
    assert topic in odradek("topic", "list").stdout
    listed = {found["name"]: found for found in as_json(odradek("topic", "list", "-o", "json"))}
    assert [sorted(part["replicas"]) for part in listed[topic]["partitions"]] == [[0, 1, 2], [0, 1, 2]]
    (described,) = as_json(odradek("topic", "describe", topic, "-o", "json"))
    assert described["config"] == {"retention.ms": "-1"}
    assert f"Topic {topic}, id " in odradek("topic", "describe", topic).stdout
    assert as_json(odradek("topic", "create", topic, "--if-not-exists", "-o", "json")) == {
        "topic": topic,
        "created": False,
    }
    assert as_json(odradek("topic", "delete", topic, "-o", "json")) == {"deleted": [topic]}
    wait_until(lambda: topic not in odradek("topic", "list").stdout, what="the topic's end")
    assert odradek("topic", "delete", topic, "--if-exists").returncode == 0


def test_topics_are_changed(odradek: Odradek, topic: str) -> None:
    assert odradek("topic", "add-partitions", topic, "-n", "1", "--dry-run").stdout == (
        f"Topic {topic} would have 3 partitions.\n"
    )
    assert as_json(odradek("topic", "add-partitions", topic, "-n", "1", "-o", "json"))["partitions"] == 3
    assert odradek("topic", "alter", topic, "-c", "retention.ms=5", "--remove", "max.message.bytes").returncode == 0
    (described,) = as_json(odradek("topic", "describe", topic, "-o", "json"))
    assert described["config"] == {"retention.ms": "5"}
    assert "use --config or --remove" in odradek("topic", "alter", topic).stderr
    odradek("produce", topic, "-p", "0", stdin="a\nb\nc\n")
    assert odradek("topic", "delete-records", topic, "--partition", "0", "--before-offset", "2").stdout == (
        "Partition 0 begins at offset 2.\n"
    )
    begins = as_json(odradek("topic", "delete-records", topic, "--all", "-p", "0", "-p", "1", "-o", "json"))
    assert [(row["partition"], row["firstOffset"]) for row in begins] == [(0, 3), (1, 0)]
    assert "either --before-offset or --all" in odradek("topic", "delete-records", topic).stderr


def test_the_cluster_is_shown(odradek: Odradek, odradek_cluster: RunningCluster, topic: str) -> None:
    assert "controller" in odradek("cluster", "info").stdout
    found = as_json(odradek("cluster", "info", "-o", "json"))
    assert [broker["id"] for broker in found["brokers"]] == odradek_cluster.broker_ids
    wait_until(lambda: odradek("cluster", "health").returncode == 0, what="a healthy cluster")
    assert as_json(odradek("cluster", "health", "-o", "json"))["healthy"] is True
    assert "online" in odradek("cluster", "log-dirs").stdout
    (first, *_) = odradek_cluster.broker_ids
    directories = as_json(odradek("cluster", "log-dirs", "--broker", str(first), "-o", "json"))
    assert topic in {replica["topic"] for directory in directories for replica in directory["replicas"]}


def test_produced_records_are_consumed(odradek: Odradek, topic: str) -> None:
    lines = [f"k{number % 7}:v{number}" for number in range(1000)]
    sent = as_json(odradek("produce", topic, "-k", ":", "-o", "json", stdin="\n".join(lines)))
    assert sent["records"] == 1000
    template = ["--format", "{key}:{value}", "--from-beginning"]
    read = odradek("consume", topic, *template, "--until-end").stdout.splitlines()
    assert sorted(read) == sorted(lines)
    for key in range(7):
        mine = [line for line in lines if line.startswith(f"k{key}:")]
        assert [line for line in read if line.startswith(f"k{key}:")] == mine
    first = odradek("consume", topic, "--from-beginning", "-n", "3", "-o", "json").stdout.splitlines()
    assert [json.loads(line)["offset"] for line in first] == [0, 1, 2]


def test_reading_starts_at_the_given_position(odradek: Odradek, topic: str) -> None:
    odradek("produce", topic, "-p", "1", stdin="a\nb\nc\n")
    assert odradek("consume", topic, "-p", "1", "--offset", "1", "-e").stdout == "b\nc\n"
    assert odradek("consume", topic, "-p", "0", "--from-beginning", "-e").stdout == ""
    assert odradek("consume", topic, "--from-time", "2000-01-01", "-e").stdout == "a\nb\nc\n"
    assert odradek("consume", topic, "--from-time", "2999-01-01", "-e").stdout == ""
    assert odradek("consume", topic, "--until-end").stdout == ""


def test_a_group_continues_at_its_committed_offsets(odradek: Odradek, topic: str) -> None:
    group = f"group-{topic}"
    odradek("produce", topic, "-p", "0", stdin="a\nb\nc\n")
    read = odradek("consume", topic, "-g", group, "--from-beginning", "-n", "2")
    assert (read.returncode, read.stdout) == (0, "a\nb\n")
    assert odradek("consume", topic, "-g", group, "-n", "1").stdout == "c\n"
    assert group in odradek("group", "list").stdout
    (described,) = as_json(odradek("group", "describe", group, "-o", "json"))
    offsets = {offset["partition"]: offset for offset in described["offsets"]}
    assert (offsets[0]["committed"], offsets[0]["end"], offsets[0]["lag"]) == (3, 3, 0)
    assert f"Group {group}, Empty, 0 members" in odradek("group", "describe", group).stdout


def test_offsets_are_reset_exported_and_imported(odradek: Odradek, topic: str, tmp_path: Path) -> None:
    group = f"group-{topic}"
    odradek("produce", topic, "-p", "0", stdin="a\nb\nc\n")
    odradek("consume", topic, "-g", group, "--from-beginning", "-n", "2")

    def reset(*arguments: str, scope: tuple[str, ...] = ("--all-topics",)) -> dict[int, tuple[int | None, int]]:
        """Return the old and new offsets by partition."""
        value = as_json(odradek("group", "reset", group, *scope, *arguments, "-o", "json"))
        assert value["executed"] is ("--execute" in arguments)
        return {row["partition"]: (row["old_offset"], row["new_offset"]) for row in value["offsets"]}

    assert reset("--to-earliest")[0] == (2, 0)
    assert reset("--to-latest", "--execute")[0] == (2, 3)
    assert reset("--shift-by", "-1", "--execute", scope=("--topic", f"{topic}:0")) == {0: (3, 2)}
    assert reset("--by-duration", "P1D", scope=("--topic", topic))[0] == (2, 0)
    assert reset("--to-datetime", "2999-01-01T00:00:00", scope=("--topic", f"{topic}:0")) == {0: (2, 3)}
    assert reset("--to-offset", "1", scope=("--topic", f"{topic}:0")) == {0: (2, 1)}
    limited = odradek("group", "reset", group, "--topic", f"{topic}:0", "--to-offset", "9")
    assert f"Offset 9 of {topic}-0 is after the end of the log" in limited.stderr
    assert "Nothing was changed" in limited.stderr
    exported = odradek("group", "reset", group, "--all-topics", "--to-current", "--export").stdout
    assert f"{topic},0,2" in exported.splitlines()
    (tmp_path / "offsets.csv").write_text(exported)
    assert reset("--to-earliest", "--execute")[0] == (2, 0)
    assert reset("--from-file", str(tmp_path / "offsets.csv"), "--execute", scope=())[0] == (0, 2)
    another = odradek("group", "reset", group, f"{group}-2", "--topic", f"{topic}:0", "--to-earliest", "--export")
    assert another.stdout == f"{group},{topic},0,0\n{group}-2,{topic},0,0\n"


def test_lag_is_shown_in_records_and_in_time(odradek: Odradek, topic: str) -> None:
    group = f"group-{topic}"
    odradek("produce", topic, "-p", "0", stdin="a\nb\nc\n")
    odradek("consume", topic, "-g", group, "--from-beginning", "-n", "2")

    def first_offsets(*options: str) -> dict[str, Any]:
        (described,) = as_json(odradek("group", "describe", group, *options, "-o", "json"))
        return next(row for row in described["offsets"] if row["partition"] == 0)

    row = first_offsets("--offsets")
    assert row["lag"] == 1
    assert row["lag_seconds"] > 0
    assert first_offsets("--offsets", "--no-time")["lag_seconds"] is None
    odradek("group", "reset", group, "--topic", topic, "--to-latest", "--execute")
    row = first_offsets()
    assert (row["lag"], row["lag_seconds"]) == (0, 0)
    (state,) = as_json(odradek("group", "describe", group, "--state", "-o", "json"))
    assert (state["state"], state["member_count"]) == ("Empty", 0)
    assert "offsets" not in state
    every = as_json(odradek("group", "describe", "--all", "--state", "-o", "json"))
    assert group in [described["group"] for described in every]
    missing = odradek("group", "describe", f"{group}-none")
    assert missing.returncode == 1
    assert f"group {group}-none does not exist" in missing.stderr


def test_groups_are_filtered_and_deleted(odradek: Odradek, topic: str) -> None:
    group = f"group-{topic}"
    created = odradek("group", "reset", group, "--topic", topic, "--to-earliest", "--execute")
    assert created.returncode == 0, created.stderr

    def listed(*options: str) -> list[str]:
        return [row["group"] for row in as_json(odradek("group", "list", *options, "-o", "json"))]

    assert group in listed("--state", "empty", "--type", "classic")
    assert group not in listed("--state", "Stable")
    assert group not in listed("--type", "consumer")
    deleted = odradek("group", "delete-offsets", group, "--topic", f"{topic}:0", "--topic", f"{topic}:7", "--yes")
    assert deleted.returncode == 1
    assert deleted.stdout == f"The offset of group {group} for {topic}-0 was deleted.\n"
    assert f"there is no partition {topic}-7" in deleted.stderr
    result = odradek("group", "delete", group, f"{group}-none", "--yes", "-o", "json")
    assert result.returncode == 1
    assert [row["deleted"] for row in json.loads(result.stdout)] == [True, False]
    assert group not in listed()
    gone = odradek("group", "delete-offsets", group, "--topic", topic, "--yes")
    assert (gone.returncode, gone.stdout) == (1, "")
    assert f"group {group} does not exist" in gone.stderr


def test_offsets_of_a_group_with_members_are_not_reset(
    odradek: Odradek, odradek_cluster: RunningCluster, topic: str
) -> None:
    group = f"group-{topic}"
    consumer = Consumer({"bootstrap.servers": odradek_cluster.bootstrap, "group.id": group, "client.id": "me"})
    try:
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(0.1) is None and len(consumer.assignment()) == 2, what="the assignment")
        refused = odradek("group", "reset", group, "--topic", topic, "--to-earliest", "--execute")
        assert refused.returncode == 1
        assert f"group {group} has members (its state is Stable)" in refused.stderr
        assert "Stop its consumers" in refused.stderr
        (described,) = as_json(odradek("group", "describe", group, "--members", "-o", "json"))
        assert described["members"][0]["partitions"] == [f"{topic}-0", f"{topic}-1"]
        assert f"{topic}:0,1" in odradek("group", "describe", group).stdout
        for command in (("delete", group), ("delete-offsets", group, "--topic", f"{topic}:0")):
            result = odradek("group", *command, "--yes")
            assert (result.returncode, result.stdout) == (1, "")
    finally:
        consumer.close()


def test_settings_of_topics_and_brokers(odradek: Odradek, topic: str) -> None:
    where = ("--topic", topic)
    assert [entry["setting"] for entry in as_json(odradek("config", "list", *where, "-o", "json"))] == ["retention.ms"]
    assert odradek("config", "set", *where, "retention.ms=5000", "cleanup.policy=compact").stdout.startswith("Set: ")

    def values() -> dict[str, str]:
        return {entry["setting"]: entry["value"] for entry in as_json(odradek("config", "list", *where, "-o", "json"))}

    # Each command may ask another broker, and the brokers learn of the change at different times.
    wait_until(lambda: values() == {"retention.ms": "5000", "cleanup.policy": "compact"}, what="the settings")
    assert odradek("config", "remove", *where, "cleanup.policy").returncode == 0
    wait_until(lambda: values() == {"retention.ms": "5000"}, what="the removal")
    assert "5000" in odradek("config", "list", *where).stdout
    some = as_json(odradek("config", "list", *where, "cleanup.policy", "-o", "json"))
    assert [(entry["setting"], entry["value"], entry["source"]) for entry in some] == [("cleanup.policy", "delete", 5)]
    every = odradek("config", "list", "--broker", "0", "--all").stdout
    assert "log.retention.hours" in every
    assert "file of the broker" in every
    set_twice = odradek("config", "set", "--brokers", "log.cleaner.backoff.ms=14000")
    assert set_twice.returncode == 0, set_twice.stderr
    assert odradek("config", "remove", "--brokers", "log.cleaner.backoff.ms").returncode == 0
    assert odradek("config", "list").returncode == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("config", "list", "--topic", "no-such-topic"), "no-such-topic"),
        (("config", "set", "--brokers", "log.retention.hours=x"), "log.retention.hours"),
        (("topic", "describe", "no-such-topic"), "no-such-topic"),
        (("topic", "delete", "no-such-topic"), "no-such-topic"),
        (("topic", "create", "too-many", "-r", "9"), "replication factor"),
        (("topic", "create", "not a name"), "not a name"),
        (("topic", "create", "bad-config", "-c", "retention.mss=1"), "retention.mss"),
        (("consume", "no-such-topic", "-e"), "no-such-topic"),
        (("group", "describe", "no-such-group"), "group no-such-group does not exist"),
    ],
)
def test_errors_have_exit_code_1(odradek: Odradek, arguments: tuple[str, ...], words: str) -> None:
    result = odradek(*arguments)
    assert result.returncode == 1
    assert result.stderr.startswith("Error: ")
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_an_unknown_partition_is_reported(odradek: Odradek, topic: str) -> None:
    assert "has no partition 9" in odradek("consume", topic, "-p", "9").stderr
    assert "no partition 9" in odradek("produce", topic, "-p", "9", stdin="x").stderr
