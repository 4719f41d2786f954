"""Properties of brokers and ensemble: where each one is written, and that a written file is read back unchanged."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.base.config import BROKER_SETTINGS, BrokerConfig
from odradek.base.setting_definitions import Update, parse_properties
from odradek_operator.crds.types import Brokers, Cluster, Monitoring, Volume, ZooKeeper
from odradek_operator.objects.cluster_properties import (
    ensemble_properties,
    is_dynamic,
    sized_defaults,
    split,
    zookeeper_connect,
)
from odradek_operator.objects.properties_file import render

CONNECT = ",".join(f"demo-zookeeper-{member}.demo-zookeeper-nodes.shop.svc:2181" for member in range(3))


def cluster(brokers: Brokers | None = None, zookeeper: ZooKeeper | None = None) -> Cluster:
    return Cluster(name="demo", namespace="shop", brokers=brokers or Brokers(), zookeeper=zookeeper or ZooKeeper())


def test_properties_of_a_plain_cluster() -> None:
    found = split(cluster())
    assert found.file == {
        "zookeeper.connect": CONNECT,
        "zookeeper.session.timeout.ms": "18000",
        "controlled.shutdown.enable": "true",
        "log.dirs": "/var/lib/odradek/data-0/kafka-log",
        "metrics.port": "9404",
        "default.replication.factor": "3",
        "offsets.topic.replication.factor": "3",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
    }
    assert found.dynamic == {}


def test_without_the_exporter_brokers_provide_the_lag_of_groups() -> None:
    alone = replace(cluster(), monitoring=Monitoring(exporter=False))
    assert split(alone).dynamic == {"group.lag.metrics.enable": "true"}
    refused = replace(alone, brokers=Brokers(config={"group.lag.metrics.enable": "false"}))
    assert split(refused).dynamic == {"group.lag.metrics.enable": "false"}


def test_each_property_of_the_resource_stands_in_one_place() -> None:
    config = {"min.insync.replicas": "2", "num.partitions": "6", "log.retention.hours": "5"}
    found = split(cluster(Brokers(config=config)))
    assert found.dynamic == {"min.insync.replicas": "2"}
    assert not found.file.keys() & found.dynamic.keys()
    assert {key: found.static[key] for key in ("num.partitions", "log.retention.hours")} == {
        "num.partitions": "6",
        "log.retention.hours": "5",
    }


@pytest.mark.parametrize("key", ["messag.max.bytes", "background.threads", "listener.name.plain.num.network.threads"])
def test_a_property_without_effect_reaches_no_broker_and_restarts_none(key: str) -> None:
    """A misspelled property, and properties that only Kafka has."""
    assert split(cluster(Brokers(config={key: "6"}))) == split(cluster(Brokers()))


def test_what_the_resource_says_comes_before_defaults() -> None:
    config = {"zookeeper.session.timeout.ms": "6000", "offsets.topic.replication.factor": "1"}
    found = split(cluster(Brokers(replicas=5, config=config)))
    assert config.items() <= found.static.items()
    assert found.sized.keys() == sized_defaults(5).keys() - config.keys()


@pytest.mark.parametrize(
    ("replicas", "factor", "min_isr"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2"), (4, "3", "2"), (1000, "3", "2")]
)
def test_internal_topics_have_no_more_replicas_than_there_are_brokers(replicas: int, factor: str, min_isr: str) -> None:
    assert split(cluster(Brokers(replicas=replicas))).sized == {
        "default.replication.factor": factor,
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": min_isr,
    }


def test_one_log_directory_for_each_volume_by_id() -> None:
    brokers = Brokers(volumes=(Volume(id=7, size="1Gi"), Volume(id=0, size="1Gi")))
    expected = "/var/lib/odradek/data-0/kafka-log,/var/lib/odradek/data-7/kafka-log"
    assert split(cluster(brokers)).static["log.dirs"] == expected


def test_a_given_ensemble_is_connected_to() -> None:
    given_one = cluster(zookeeper=ZooKeeper(connect="zk-0:2181,zk-1:2181/kafka"))
    assert zookeeper_connect(given_one) == split(given_one).static["zookeeper.connect"] == "zk-0:2181,zk-1:2181/kafka"


@pytest.mark.parametrize("key", sorted(BROKER_SETTINGS))
def test_the_brokers_own_table_says_what_is_dynamic(key: str) -> None:
    setting = BROKER_SETTINGS[key]
    assert is_dynamic(key) is (setting.dynamic is Update.CLUSTER_WIDE)
    assert not (is_dynamic(key) and setting.sensitive)


def test_brokers_accept_their_file_and_their_dynamic_properties() -> None:
    found = split(cluster(Brokers(config={"min.insync.replicas": "2", "num.partitions": "6"})))
    # These are the properties that the pod adds for each broker.
    own = {"broker.id": "0", "listeners": "PLAINTEXT://:9091"}
    config, warnings = BrokerConfig.parse({**parse_properties(render(found.file, header="h")), **own})
    assert warnings == []
    assert config.with_dynamic(found.dynamic).min_insync_replicas == 2
    assert (config.log_dirs, config.metrics_port, config.num_partitions) == (
        ("/var/lib/odradek/data-0/kafka-log",),
        9404,
        6,
    )


def test_properties_of_the_ensemble() -> None:
    wanted = cluster(zookeeper=ZooKeeper(config={"tickTime": "500", "snapCount": "10"}))
    found = ensemble_properties(wanted)
    assert (found["tickTime"], found["snapCount"], found["initLimit"], found["syncLimit"]) == ("500", "10", "10", "5")
    assert (found["dataDir"], found["clientPort"]) == ("/var/lib/odradek/data", "2181")
    assert found["4lw.commands.whitelist"].split(",") == ["mntr", "ruok", "srvr"]


def test_a_file_says_whence_it_is_and_is_sorted() -> None:
    assert render({"b": "2", "a": "1"}, header="Ours.") == "# Ours.\na=1\nb=2\n"


# Java's property files use 16-bit code units. A character beyond 0xFFFF is written as two units and read back as two.
texts = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]))


@given(st.dictionaries(texts.filter(bool), texts))
def test_files_are_read_as_they_were_meant(pairs: dict[str, str]) -> None:
    assert parse_properties(render(pairs, header="h")) == pairs
