"""The unmodified ConfigCommand of Apache Kafka reads and changes settings of topics, brokers and loggers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from odradek.testing.waiting import wait_until
from odradek_testkit.interop.apache import InteropError, Tools

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow]

CONFIGS = "kafka.admin.ConfigCommand"
DEFAULTS = ["--entity-type", "brokers", "--entity-default"]
LINE = re.compile(r"^  ([\w.]+)=(\S*) sensitive=(?:false|true) synonyms=\{(.*)\}$", re.MULTILINE)


def of_broker(number: int) -> list[str]:
    """Return the options that name a broker."""
    return ["--entity-type", "brokers", "--entity-name", str(number)]


def described(tools: Tools, entity: list[str], *options: str) -> dict[str, tuple[str, str]]:
    """Return value and synonyms of each setting in the output of the tool."""
    shown = tools.run(CONFIGS, "--describe", *entity, *options)
    return {name: (value, synonyms) for name, value, synonyms in LINE.findall(shown)}


def alter(tools: Tools, entity: list[str], *changes: str) -> None:
    tools.run(CONFIGS, "--alter", *entity, *changes)


@pytest.fixture
def restored(tools: Tools) -> Iterator[Callable[[list[str], str], None]]:
    """Deletes settings after the test, because tests share the brokers."""
    changed: list[tuple[list[str], str]] = []

    def remember(entity: list[str], name: str) -> None:
        changed.append((entity, name))

    yield remember
    for entity, name in changed:
        alter(tools, entity, "--delete-config", name)
    assert all(described(tools, entity) == {} for entity, _ in changed)


def test_defaults_of_brokers_and_a_brokers_own(
    tools: Tools, topic: str, restored: Callable[[list[str], str], None]
) -> None:
    restored(DEFAULTS, "log.retention.ms,max.connections.per.ip")
    restored(of_broker(1), "log.retention.ms")
    alter(tools, DEFAULTS, "--add-config", "log.retention.ms=7000000,max.connections.per.ip=500")
    alter(tools, of_broker(1), "--add-config", "log.retention.ms=8000000")
    of_all = "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=7000000"
    assert described(tools, DEFAULTS) == {
        "log.retention.ms": ("7000000", of_all),
        "max.connections.per.ip": ("500", "DYNAMIC_DEFAULT_BROKER_CONFIG:max.connections.per.ip=500"),
    }
    value, synonyms = described(tools, of_broker(1))["log.retention.ms"]
    assert (value, synonyms.startswith(f"DYNAMIC_BROKER_CONFIG:log.retention.ms=8000000, {of_all}")) == (
        "8000000",
        True,
    )
    wait_until(
        lambda: described(tools, of_broker(2), "--all")["log.retention.ms"][0] == "7000000",
        what="the notification of broker 2",
    )
    in_force = described(tools, ["--entity-type", "topics", "--entity-name", topic], "--all")
    assert in_force["retention.ms"][0] in ("7000000", "8000000"), "the value of the broker that responded"


@pytest.mark.parametrize("entity", [DEFAULTS, of_broker(1)], ids=["all", "one"])
def test_settings_without_an_effect_here_are_no_obstacle(
    tools: Tools, restored: Callable[[list[str], str], None], entity: list[str]
) -> None:
    """Before Kafka 4, the tool refuses to change an entity if it does not get all of its values."""
    restored(entity, "num.io.threads,background.threads,log.retention.ms")
    alter(tools, entity, "--add-config", "num.io.threads=9,background.threads=11")
    alter(tools, entity, "--add-config", "log.retention.ms=7000000")
    alter(tools, entity, "--add-config", "num.io.threads=10")
    assert {name: value for name, (value, _) in described(tools, entity).items()} == {
        "num.io.threads": "10",
        "background.threads": "11",
        "log.retention.ms": "7000000",
    }


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("num.partitions=7", "restart"),
        ("broker.id=7", "restart"),
        ("log.retention.ms=soon", "whole number"),
        ("metric.reporters=com.example.Reporter", "remove it"),
    ],
)
@pytest.mark.parametrize("entity", [DEFAULTS, of_broker(1)], ids=["all", "one"])
def test_read_only_settings_are_refused_with_the_reason(
    tools: Tools, entity: list[str], change: str, reason: str
) -> None:
    with pytest.raises(InteropError, match=f"InvalidRequestException: [^\n]*{reason}"):
        alter(tools, entity, "--add-config", change)


def test_replicas_to_throttle_and_the_rate(
    tools: Tools, topic: str, restored: Callable[[list[str], str], None]
) -> None:
    of_topic = ["--entity-type", "topics", "--entity-name", topic]
    restored(of_broker(0), "leader.replication.throttled.rate,follower.replication.throttled.rate")
    alter(tools, of_topic, "--add-config", "leader.replication.throttled.replicas=[0:0,1:1]")
    alter(
        tools,
        of_broker(0),
        "--add-config",
        "leader.replication.throttled.rate=100000000,follower.replication.throttled.rate=100000000",
    )
    assert described(tools, of_topic)["leader.replication.throttled.replicas"][0] == "0:0,1:1"
    assert described(tools, of_broker(0)).keys() == {
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
    }


def test_levels_of_loggers(tools: Tools) -> None:
    entity = ["--entity-type", "broker-loggers", "--entity-name", "2"]
    logger = "odradek.server.configs.config_handlers"
    before = described(tools, entity)
    assert before[logger] == before["root"]
    alter(tools, entity, "--add-config", f"{logger}=TRACE")
    assert described(tools, entity) == {**before, logger: ("TRACE", "")}
    with pytest.raises(InteropError, match=r"InvalidConfigurationException: [^\n]*one of TRACE"):
        alter(tools, entity, "--add-config", f"{logger}=WARNING")
    with pytest.raises(InteropError, match=r"Invalid broker logger\(s\)"):
        alter(tools, entity, "--add-config", "no.such.logger=DEBUG")
    alter(tools, entity, "--delete-config", logger)
    assert described(tools, entity) == before
