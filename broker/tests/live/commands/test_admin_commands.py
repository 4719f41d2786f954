"""Commands that describe, configure and measure, with one real broker in the test process."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
import yaml
from click.testing import CliRunner, Result

from odradek import BlockingClient, TopicPartition
from odradek.cli.main import cli
from odradek.testing.in_process import InProcessBroker


class Commands:
    """Runs commands in this process."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def run(self, *arguments: str) -> Result:
        result = CliRunner().invoke(cli, arguments, env={"ODRADEK_BOOTSTRAP_SERVER": self._bootstrap})
        assert result.exception is None or isinstance(result.exception, SystemExit), result.output
        return result

    def text(self, *arguments: str) -> str:
        result = self.run(*arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    def value(self, *arguments: str) -> Any:
        return json.loads(self.text(*arguments, "-o", "json"))


@pytest.fixture
def odradek(odradek_broker: InProcessBroker) -> Commands:
    return Commands(odradek_broker.bootstrap)


@pytest.fixture
def topic(odradek: Commands) -> Iterator[str]:
    name = f"admin-{uuid4().hex}"
    odradek.text("topic", "create", name, "-p", "2", "-c", "retention.ms=-1")
    yield name
    odradek.text("topic", "delete", name)


def test_a_topic_is_described_with_offsets_and_sizes(
    odradek: Commands, odradek_broker: InProcessBroker, topic: str
) -> None:
    with BlockingClient(odradek_broker.bootstrap) as client:
        with client.producer() as producer:
            for number in range(5):
                producer.send(topic, b"%d" % number, partition=0)
        client.admin.delete_records({TopicPartition(topic, 0): 2})
    (described,) = odradek.value("topic", "describe", topic)
    first, second = described["partitions"]
    assert (first["start_offset"], first["end_offset"]) == (2, 5)
    assert (second["start_offset"], second["end_offset"], second["size_bytes"]) == (0, 0, 0)
    assert first["size_bytes"] == described["size_bytes"] == first["replica_sizes"]["0"] > 0
    assert "START" in odradek.text("topic", "describe", topic)
    (metadata,) = odradek.value("topic", "describe", topic, "--metadata-only")
    assert "start_offset" not in metadata["partitions"][0]
    assert odradek.text("topic", "describe", topic, "--under-replicated") == "All replicas are in sync.\n"
    assert yaml.safe_load(odradek.text("topic", "describe", topic, "-o", "yaml")) == odradek.value(
        "topic", "describe", topic
    )


def test_brokers_and_features_are_shown(odradek: Commands, topic: str) -> None:
    (load,) = odradek.value("cluster", "brokers")
    assert (load["id"], load["alive"], load["controller"], load["offlineDirectories"]) == (0, True, True, 0)
    assert load["leaders"] == load["replicas"] >= 2
    found = odradek.value("cluster", "features")
    # Level 2 is finalized only if the setting or an administrator asks for it.
    assert (found["finalized"], found["supported"]) == ({}, {"transaction.version": {"min": 0, "max": 2}})
    assert "transaction.version" in odradek.text("cluster", "features")


def test_the_synonyms_of_a_setting_are_shown_in_their_order(odradek: Commands, topic: str) -> None:
    (entry,) = odradek.value("config", "list", "--topic", topic, "retention.ms", "--synonyms")
    assert (entry["value"], entry["source"]) == ("-1", 1)
    first, *_, last = entry["synonyms"]
    assert (first["setting"], first["value"], first["source"]) == ("retention.ms", "-1", 1)
    assert last["source"] == 5
    (entry,) = odradek.value("config", "list", "--topic", topic, "retention.ms")
    assert "synonyms" not in entry
    assert "  retention.ms" in odradek.text("config", "list", "--topic", topic, "--synonyms")


def test_the_levels_of_loggers_are_changed(odradek: Commands) -> None:
    name = f"odradek.test.{uuid4().hex}"
    logging.getLogger(name)
    where = ("--broker-logger", "0")
    assert odradek.value("config", "set", *where, f"{name}=DEBUG") == {"set": {name: "DEBUG"}}
    (entry,) = odradek.value("config", "list", *where, name)
    assert (entry["setting"], entry["value"], entry["source"]) == (name, "DEBUG", 6)
    assert logging.getLogger(name).level == logging.DEBUG
    refused = odradek.run("config", "set", *where, f"{name}=LOUD")
    assert (refused.exit_code, "'LOUD' is not a level" in refused.output) == (1, True)
    assert odradek.value("config", "remove", *where, name) == {"removed": [name]}
    assert logging.getLogger(name).level == logging.NOTSET


def test_writing_and_reading_are_measured(odradek: Commands, topic: str) -> None:
    written = odradek.value("perf", "produce", topic, "--records", "1050", "--size", "50")
    assert (written["records"], written["bytes"]) == (1050, 52_500)
    assert 0 < written["latencyMs"]["p50"] <= written["latencyMs"]["p999"] <= written["latencyMs"]["maximum"] * 1.005
    paced = odradek.value("perf", "produce", topic, "--records", "3", "--throughput", "1000", "-X", "acks=1")
    assert (paced["records"], paced["bytes"]) == (3, 3000)
    read = odradek.value("perf", "consume", topic, "--records", "1053")
    assert read["records"] == 1053
    in_group = odradek.value("perf", "consume", topic, "--records", "1053", "--group", f"group-{topic}")
    assert in_group["records"] == 1053
    again = odradek.value("perf", "consume", topic, "--records", "1053", "--group", f"group-{topic}")
    assert again["records"] == 1053
    trips = odradek.value("perf", "latency", topic, "--records", "5", "--size", "10")
    assert (trips["records"], trips["bytes"]) == (5, 5 * 26)
    (described,) = odradek.value("topic", "describe", topic)
    assert sum(part["end_offset"] for part in described["partitions"]) == 1058
    few = odradek.run("perf", "consume", topic, "--records", "9999", "--timeout", "300", "-o", "json")
    assert few.exit_code == 1
    assert json.loads(few.stdout)["records"] == 1058
    assert "Only 1058 of 9999 records arrived" in few.stderr


def test_a_record_that_is_refused_ends_a_measurement(odradek: Commands, topic: str) -> None:
    odradek.text("topic", "alter", topic, "-c", "max.message.bytes=1000")
    refused = odradek.run("perf", "produce", topic, "--records", "5", "--size", "5000")
    assert refused.exit_code == 1
    assert refused.stderr.startswith("Error: ")
