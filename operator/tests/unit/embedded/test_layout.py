"""Ports, listeners and broker properties of an embedded cluster."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.app.properties import parse_properties
from odradek.base.config import BROKER_SETTINGS, BrokerConfig
from odradek_operator.crds import OPERATED_KEYS, Brokers, Cluster, Listener, Volume
from odradek_operator.embedded.layout import (
    MonitoringPorts,
    Ports,
    broker_properties,
    left_out,
    render_properties,
    served_listener,
    small_defaults,
)
from odradek_operator.errors import EmbeddedError

DATA = PurePosixPath("/data")
PORTS = Ports.in_rows(3, zookeeper=2181, base=9092, metrics_base=9404)


def properties(cluster: Cluster, broker_id: int = 1) -> dict[str, str]:
    return broker_properties(cluster, broker_id, data=DATA, ports=PORTS, zookeeper="127.0.0.1:2181")


def test_ports_stand_in_rows() -> None:
    assert PORTS.brokers == (9092, 9093, 9094)
    assert PORTS.metrics == (9404, 9405, 9406)
    assert PORTS.bootstrap == "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"
    assert [use.port for use in PORTS.uses(own_zookeeper=True)] == [2181, 9092, 9093, 9094, 9404, 9405, 9406]
    assert [use.port for use in PORTS.uses(own_zookeeper=False)] == [9092, 9093, 9094, 9404, 9405, 9406]


def test_monitoring_takes_three_ports_in_a_row() -> None:
    ports = Ports.in_rows(1, zookeeper=2181, base=9092, metrics_base=9404, monitoring=9401)
    assert ports.monitoring == MonitoringPorts(operator=9401, zookeeper=9402, exporter=9403)
    assert [use.port for use in ports.uses(own_zookeeper=True)] == [2181, 9092, 9404, 9401, 9402, 9403]
    # Another ensemble has its own monitoring.
    assert [use.port for use in ports.uses(own_zookeeper=False)] == [9092, 9404, 9401, 9403]


def test_a_broker_accepts_its_properties() -> None:
    config, warnings = BrokerConfig.parse(properties(Cluster(name="demo")))
    assert warnings == []
    assert config.broker_id == 1
    assert [str(endpoint) for endpoint in config.listener_endpoints()] == ["127.0.0.1:9093"]
    assert config.log_dirs == ("/data/broker-1/volume-0",)
    assert config.zookeeper_connect == "127.0.0.1:2181"
    assert (config.metrics_host, config.metrics_port) == ("127.0.0.1", 9405)


def test_every_volume_is_a_log_directory() -> None:
    volumes = (Volume(id=0, size="1Gi"), Volume(id=3, size="1Gi"))
    found = properties(Cluster(name="demo", brokers=Brokers(volumes=volumes)))
    assert found["log.dirs"] == "/data/broker-1/volume-0,/data/broker-1/volume-3"


def test_brokers_are_in_the_racks_in_turn() -> None:
    cluster = Cluster(name="demo", brokers=Brokers(rack_names=("east", "west")))
    assert [properties(cluster, number)["broker.rack"] for number in range(3)] == ["east", "west", "east"]
    assert "broker.rack" not in properties(Cluster(name="demo"))


def test_the_resource_overrides_the_small_defaults() -> None:
    config = {"group.initial.rebalance.delay.ms": "3000", "min.insync.replicas": "2"}
    found = properties(Cluster(name="demo", brokers=Brokers(config=config)))
    assert found["group.initial.rebalance.delay.ms"] == "3000"
    assert found["min.insync.replicas"] == "2"


@pytest.mark.parametrize(("brokers", "factor"), [(1, "1"), (2, "2"), (3, "3"), (7, "3")])
def test_internal_topics_fit_the_number_of_brokers(brokers: int, factor: str) -> None:
    defaults = small_defaults(brokers)
    assert defaults["offsets.topic.replication.factor"] == factor
    assert defaults["default.replication.factor"] == factor
    assert defaults.keys() <= BROKER_SETTINGS.keys()
    assert not defaults.keys() & OPERATED_KEYS


def test_only_the_first_plain_listener_is_served() -> None:
    tls = Listener(name="tls", port=1, tls=True)
    plain, other = Listener(name="plain", port=2), Listener(name="other", port=3)
    cluster = Cluster(name="demo", listeners=(tls, plain, other))
    assert served_listener(cluster) is plain
    assert [sentence.split()[1] for sentence in left_out(cluster)] == ["tls", "other"]
    with pytest.raises(EmbeddedError, match="no listener without tls"):
        served_listener(Cluster(name="demo", listeners=(tls,)))


keys = st.from_regex(r"[a-z.]{1,9}", fullmatch=True)
texts = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=9)


@given(st.dictionaries(keys, texts | st.sampled_from(["\\", " a  ", "a\nb", "\u2028", "#x", "=", "\\u0041"])))
def test_a_properties_file_is_read_as_it_was_written(pairs: dict[str, str]) -> None:
    assert parse_properties(render_properties(pairs)) == pairs
