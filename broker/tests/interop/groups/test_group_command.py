"""Kafka's ConsumerGroupCommand with this broker, and its CSV files with `odradek group reset`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from click.testing import CliRunner

from odradek.cli.main import cli
from odradek.testing.waiting import wait_until
from odradek_testkit.interop.apache import Tools

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow]

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONFIGS = "kafka.admin.ConfigCommand"
RECORDS = 10


def rows(printed: str) -> list[dict[str, str]]:
    """Return the rows of the tables in the output of the tool, by column."""
    found: list[dict[str, str]] = []
    columns: list[str] = []
    for line in printed.replace("COORDINATOR (ID)", "COORDINATOR ID").splitlines():
        cells = line.split()
        if cells and cells[0] == "GROUP":
            columns = cells
        elif columns and len(cells) >= len(columns) - 1:
            found.append(dict(zip(columns, cells, strict=False)))
    return found


def reset(tools: Tools, group: str, *options: str) -> dict[int, int]:
    """Return the new offsets that the tool shows, by partition."""
    printed = tools.run(GROUPS, "--reset-offsets", "--group", group, *options)
    # Kafka 3.9 prints all rows in one line.
    return {int(number): int(offset) for number, offset in re.findall(rf"{group} +\S+ +(\d+) +(\d+)", printed)}


def committed(tools: Tools, group: str) -> dict[int, str]:
    printed = tools.run(GROUPS, "--describe", "--group", group)
    return {int(row["PARTITION"]): row["CURRENT-OFFSET"] for row in rows(printed)}


def run_odradek(tools: Tools, *arguments: str) -> str:
    result = CliRunner().invoke(cli, ["group", *arguments, "-b", tools.bootstrap])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def filled(tools: Tools, topic: str) -> str:
    """A topic with ten records in each of its three partitions. Their timestamps are seconds since 1970, so retention
    must not delete them."""
    tools.run(CONFIGS, "--alter", "--topic", topic, "--add-config", "retention.ms=-1")
    producer = confluent_kafka.Producer({"bootstrap.servers": tools.bootstrap})
    for number in range(RECORDS):
        for partition in range(3):
            producer.produce(topic, b"value", partition=partition, timestamp=1000 * (number + 1))
    producer.flush(60)
    return topic


@pytest.fixture
def consumer(tools: Tools, filled: str, group: str) -> Iterator[confluent_kafka.Consumer]:
    """A member of the group that has committed the offset 4 in each partition."""
    settings = {"bootstrap.servers": tools.bootstrap, "group.id": group, "client.id": "me"}
    member = confluent_kafka.Consumer({**settings, "enable.auto.commit": "false"})
    try:
        member.subscribe([filled])
        wait_until(lambda: member.poll(0.1) is None and len(member.assignment()) == 3, what="the assignment")
        offsets = [confluent_kafka.TopicPartition(filled, number, 4) for number in range(3)]
        member.commit(offsets=offsets, asynchronous=False)
        yield member
    finally:
        member.close()


def test_groups_are_listed_by_state_and_type(tools: Tools, consumer: confluent_kafka.Consumer, group: str) -> None:
    def listed(*options: str) -> dict[str, dict[str, str]]:
        return {row["GROUP"]: row for row in rows(tools.run(GROUPS, "--list", *options))}

    assert listed("--state")[group]["STATE"] == "Stable"
    assert listed("--type")[group]["TYPE"].lower() == "classic"
    both = listed("--state", "stable", "--type", "classic")[group]
    assert (both["STATE"], both["TYPE"].lower()) == ("Stable", "classic")
    assert group not in listed("--state", "Empty,Dead")
    assert group not in listed("--type", "consumer")
    consumer.close()
    assert listed("--state", "Empty")[group]["STATE"] == "Empty"


def test_all_views_of_all_groups(tools: Tools, consumer: confluent_kafka.Consumer, filled: str, group: str) -> None:
    def described(*options: str) -> list[dict[str, str]]:
        return [row for row in rows(tools.run(GROUPS, "--describe", "--all-groups", *options)) if row["GROUP"] == group]

    offsets = described("--offsets")
    assert [(row["TOPIC"], row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) for row in offsets] == [
        (filled, "4", "10", "6")
    ] * 3
    (state,) = described("--state")
    assert (state["STATE"], state["#MEMBERS"]) == ("Stable", "1")
    (member,) = described("--members")
    assert (member["CLIENT-ID"], member["#PARTITIONS"]) == ("me", "3")
    (verbose,) = described("--members", "--verbose")
    assert verbose["CONSUMER-ID"] == member["CONSUMER-ID"]
    assert len(described("--offsets", "--verbose")) == 3


def test_offsets_are_reset_to_every_target(
    tools: Tools, consumer: confluent_kafka.Consumer, filled: str, group: str, tmp_path: Path
) -> None:
    refused = tools.run(GROUPS, "--reset-offsets", "--group", group, "--all-topics", "--to-latest", "--execute")
    assert "current state is Stable" in refused
    consumer.close()
    wait_until(
        lambda: "Empty" in tools.run(GROUPS, "--describe", "--group", group, "--state"), what="the end of the member"
    )
    every, one = ("--topic", filled), ("--topic", f"{filled}:1")
    assert reset(tools, group, *every, "--to-earliest", "--dry-run") == {0: 0, 1: 0, 2: 0}
    assert reset(tools, group, "--all-topics", "--to-latest") == {0: 10, 1: 10, 2: 10}
    assert reset(tools, group, *one, "--to-offset", "7") == {1: 7}
    assert reset(tools, group, *one, "--to-offset", "99") == {1: 10}
    assert reset(tools, group, *one, "--shift-by", "-9") == {1: 0}
    assert reset(tools, group, *one, "--to-current") == {1: 4}
    assert reset(tools, group, *one, "--to-datetime", "1970-01-01T00:00:03.500") == {1: 3}
    assert reset(tools, group, *one, "--by-duration", "PT1H") == {1: 10}
    assert committed(tools, group) == {0: "4", 1: "4", 2: "4"}
    assert reset(tools, group, *one, "--shift-by", "2", "--execute") == {1: 6}
    assert committed(tools, group) == {0: "4", 1: "6", 2: "4"}
    plan = tmp_path / "plan.csv"
    plan.write_text(tools.run(GROUPS, "--reset-offsets", "--group", group, "--all-topics", "--to-current", "--export"))
    reset(tools, group, "--all-topics", "--to-latest", "--execute")
    assert reset(tools, group, "--from-file", str(plan), "--execute") == {0: 4, 1: 6, 2: 4}
    assert committed(tools, group) == {0: "4", 1: "6", 2: "4"}
    assert "successful" in tools.run(GROUPS, "--delete-offsets", "--group", group, "--topic", f"{filled}:0").lower()
    assert committed(tools, group) == {1: "6", 2: "4"}
    assert "successful" in tools.run(GROUPS, "--delete", "--group", group)


def test_files_of_one_group_are_exchanged_in_both_directions(
    tools: Tools, filled: str, group: str, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.csv"
    scope = ("--topic", f"{filled}:0", "--topic", f"{filled}:2")
    plan.write_text(run_odradek(tools, "reset", group, *scope, "--to-datetime", "1970-01-01T00:00:03.500", "--export"))
    assert reset(tools, group, "--from-file", str(plan), "--execute") == {0: 3, 2: 3}
    assert committed(tools, group) == {0: "3", 2: "3"}
    exported = tools.run(
        GROUPS, "--reset-offsets", "--group", group, "--all-topics", "--shift-by", "1", "--export", "--dry-run"
    )
    plan.write_text(exported)
    assert run_odradek(tools, "reset", group, "--from-file", str(plan), "--execute", "--export").splitlines() == [
        f"{filled},0,4",
        f"{filled},2,4",
    ]
    assert committed(tools, group) == {0: "4", 2: "4"}


def test_files_of_several_groups_are_exchanged_in_both_directions(
    tools: Tools, filled: str, group: str, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.csv"
    # Kafka's tool puts names in quotes that are longer than 24 characters.
    names = (group, f'{group} with a long "name", and a comma')
    both = [option for name in names for option in ("--group", name)]
    plan.write_text(run_odradek(tools, "reset", *names, "--topic", filled, "--to-offset", "5", "--export"))
    tools.run(GROUPS, "--reset-offsets", *both, "--from-file", str(plan), "--execute")
    (first, second) = (run_odradek(tools, "reset", name, "--all-topics", "--to-current", "--export") for name in names)
    assert first == second == "".join(f"{filled},{number},5\n" for number in range(3))
    exported = tools.run(GROUPS, "--reset-offsets", *both, "--topic", filled, "--to-earliest", "--export", "--dry-run")
    plan.write_text(exported)
    run_odradek(tools, "reset", *names, "--from-file", str(plan), "--execute")
    assert committed(tools, group) == {0: "0", 1: "0", 2: "0"}
