"""The broker's catalogue of settings corresponds to Apache Kafka 3.9: name, type, default and dynamic updates."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from odradek.base.config import BROKER_SETTINGS, TOPIC_SETTINGS
from odradek.base.setting_definitions import Setting
from odradek.base.settings_catalogue import IDLE_BROKER_SETTINGS, IDLE_TOPIC_SETTINGS, INTERNAL_SETTINGS
from odradek_testkit.interop.apache import QUICK_START, compile_java, jars, run_tool

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow]

VERSION: Final = "3.9.1"
SOURCE: Final = Path(__file__).parent / "java" / "Settings.java"

OWN: Final = {
    "allow.everyone.if.no.acl.found",
    "broker.machine",
    "connection.handshake.timeout.ms",
    "group.lag.metrics.enable",
    "group.lag.metrics.max.partitions",
    "group.lag.refresh.interval.ms",
    "group.consumer.regex.refresh.interval.ms",
    "initial.metadata.wait.max.ms",
    "inter.broker.request.listeners",
    "log.dir.check.interval.ms",
    "log.dir.free.check.interval.ms",
    "log.dir.min.free.bytes",
    "log.dir.queue.max.bytes",
    "log.dir.slow.ms",
    "log.dir.stall.timeout.ms",
    "log.index.cache.bytes",
    "log.read.ahead.bytes",
    "log.record.validation",
    "max.in.flight.requests.per.connection",
    "metrics.host",
    "metrics.port",
    "process.hang.timeout.ms",
    "prepared.transactions.enable",
    "process.supervision.enable",
    "queued.max.request.slow.ms",
    "super.users",
    "transaction.version",
    "zookeeper.auth.digest",
}
"""Settings that Kafka 3.9 does not have, or that only its authorizer reads."""

DYNAMIC_ONLY: Final = {
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
}
"""Settings that Kafka only reads from ZooKeeper."""

SYSTEM_PROPERTIES: Final = {"zookeeper.jute.maxbuffer", "zookeeper.sasl.client", "zookeeper.sasl.jaas.config"}
"""Settings that Kafka gets from the command line of Java or from a JAAS file."""


class Known(NamedTuple):
    """The properties of a setting that are compared."""

    kind: str
    update: str
    is_internal: bool
    default: str | None


@pytest.fixture(scope="module")
def of_kafka(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, dict[str, Known]]:
    """Return every setting of brokers and topics that Kafka's classes declare."""
    folder = jars(VERSION, Path(pytestconfig.rootpath) / ".interop")
    directory = tmp_path_factory.mktemp("settings")
    compile_java(folder, [SOURCE], directory)
    found: dict[str, dict[str, Known]] = {"broker": {}, "topic": {}}
    for line in run_tool(folder, "Settings", [], options=QUICK_START, classes=directory).splitlines():
        entity, name, kind, update, visibility, default = line.split("\t")
        found[entity][name] = Known(kind, update, visibility == "internal", default[1:] if default != "null" else None)
    return found


def kinds(settings: Mapping[str, Setting]) -> dict[str, str]:
    return {name: setting.kind.name for name, setting in settings.items()}


def test_every_setting_of_kafkas_brokers_is_known_with_its_type(of_kafka: Mapping[str, dict[str, Known]]) -> None:
    ours = kinds({**BROKER_SETTINGS, **IDLE_BROKER_SETTINGS})
    assert {name: kind for name, kind in ours.items() if name not in OWN | DYNAMIC_ONLY | SYSTEM_PROPERTIES} == {
        name: known.kind for name, known in of_kafka["broker"].items()
    }


def test_only_passwords_are_sensitive(of_kafka: Mapping[str, dict[str, Known]]) -> None:
    for name, setting in {**BROKER_SETTINGS, **IDLE_BROKER_SETTINGS}.items():
        if name in of_kafka["broker"]:
            assert setting.sensitive is (of_kafka["broker"][name].kind == "PASSWORD"), name


def test_they_change_at_run_time_where_kafkas_do(of_kafka: Mapping[str, dict[str, Known]]) -> None:
    ours = {name: setting.dynamic.value for name, setting in {**BROKER_SETTINGS, **IDLE_BROKER_SETTINGS}.items()}
    theirs = {name: known.update for name, known in of_kafka["broker"].items()}
    assert {name: ours[name] for name in ours.keys() & theirs.keys() if ours[name] != theirs[name]} == {}


def test_settings_without_an_effect_have_kafkas_default(of_kafka: Mapping[str, dict[str, Known]]) -> None:
    for name, setting in IDLE_BROKER_SETTINGS.items():
        known = of_kafka["broker"][name]
        assert (setting.render(setting.default), name in INTERNAL_SETTINGS) == (known.default, known.is_internal), name
    for name, setting in IDLE_TOPIC_SETTINGS.items():
        assert setting.render(setting.default) == of_kafka["topic"][name].default, name


def test_every_setting_of_kafkas_topics_is_known_with_its_type(of_kafka: Mapping[str, dict[str, Known]]) -> None:
    ours = kinds({**TOPIC_SETTINGS, **IDLE_TOPIC_SETTINGS})
    assert ours == {name: known.kind for name, known in of_kafka["topic"].items()}
