"""Ports, listeners and broker properties of an embedded cluster."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.base.config import BROKER_SETTINGS, BrokerConfig
from odradek.base.setting_definitions import parse_properties
from odradek_operator.crds import OPERATED_KEYS, Brokers, Cluster, Listener, Volume
from odradek_operator.crds.types import ListenerAuthentication
from odradek_operator.embedded.layout import (
    MonitoringPorts,
    Ports,
    ServedListeners,
    Site,
    addresses,
    broker_properties,
    render_properties,
    served_listeners,
    small_defaults,
)
from odradek_operator.objects.cluster_properties import sized_defaults

DATA = PurePosixPath("/data")
PORTS = Ports.in_rows(3, zookeeper=2181, base=9092, metrics_base=9404)


SITE = Site(data=DATA, ports=PORTS, zookeeper="127.0.0.1:2181")


def properties(cluster: Cluster, broker_id: int = 1) -> dict[str, str]:
    return broker_properties(cluster, broker_id, SITE).file


def test_ports_are_in_rows() -> None:
    assert PORTS.brokers == (9092, 9093, 9094)
    assert PORTS.metrics == (9404, 9405, 9406)
    assert PORTS.bootstrap(range(3)) == "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"
    assert [use.port for use in PORTS.uses(range(3), own_zookeeper=True)] == [2181, 9092, 9404, 9093, 9405, 9094, 9406]
    assert [use.port for use in PORTS.uses(range(3), own_zookeeper=False)] == [9092, 9404, 9093, 9405, 9094, 9406]


def test_brokers_beyond_the_row_have_the_next_ports() -> None:
    assert [PORTS.broker(broker) for broker in range(5)] == [9092, 9093, 9094, 9095, 9096]
    assert PORTS.broker_metrics(4) == 9408
    assert [use.port for use in PORTS.uses_of_broker(3)] == [9095, 9407]
    scattered = Ports(zookeeper=1, brokers=(500, 700), metrics=(600, 800))
    assert [scattered.broker(broker) for broker in range(4)] == [500, 700, 701, 702]
    assert scattered.bootstrap(range(3)) == "127.0.0.1:500,127.0.0.1:700,127.0.0.1:701"


def test_monitoring_takes_three_ports_in_a_row() -> None:
    ports = Ports.in_rows(1, zookeeper=2181, base=9092, metrics_base=9404, monitoring=9401)
    assert ports.monitoring == MonitoringPorts(operator=9401, zookeeper=9402, exporter=9403)
    assert [use.port for use in ports.uses(range(1), own_zookeeper=True)] == [2181, 9092, 9404, 9401, 9402, 9403]
    # An ensemble of others has its own monitoring, so no port is used for it.
    assert [use.port for use in ports.uses(range(1), own_zookeeper=False)] == [9092, 9404, 9401, 9403]


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
    config = {"group.initial.rebalance.delay.ms": "3000", "default.replication.factor": "2"}
    found = broker_properties(Cluster(name="demo", brokers=Brokers(config=config)), 1, SITE)
    assert found.static["group.initial.rebalance.delay.ms"] == "3000"
    assert found.static["default.replication.factor"] == "2"
    assert found.sized.keys() == sized_defaults(3).keys() - config.keys()


def test_dynamic_properties_and_those_without_effect_are_not_in_the_file() -> None:
    config = {"min.insync.replicas": "2", "num.partitions": "3", "num.io.threads": "8"}
    found = properties(Cluster(name="demo", brokers=Brokers(config=config)))
    assert found["num.partitions"] == "3"
    assert not found.keys() & {"min.insync.replicas", "num.io.threads"}


def test_a_volume_with_replicas_is_kept() -> None:
    found = broker_properties(Cluster(name="demo"), 1, SITE, kept_volumes=[3])
    assert found.static["log.dirs"] == "/data/broker-1/volume-0,/data/broker-1/volume-3"


@pytest.mark.parametrize(("brokers", "factor"), [(1, "1"), (2, "2"), (3, "3"), (7, "3")])
def test_internal_topics_fit_the_number_of_brokers(brokers: int, factor: str) -> None:
    defaults = sized_defaults(brokers)
    assert defaults["offsets.topic.replication.factor"] == factor
    assert defaults["default.replication.factor"] == factor
    keys = defaults.keys() | small_defaults().keys()
    assert keys <= BROKER_SETTINGS.keys()
    assert not keys & OPERATED_KEYS


PLAIN = Listener(name="plain", port=9092)


def served(*listeners: Listener, count: int = 3) -> ServedListeners:
    cluster = Cluster(name="demo", listeners=listeners)
    return served_listeners(cluster, PORTS.uses(range(count), own_zookeeper=True), brokers=range(count))


def test_the_first_plain_listener_has_the_base_port_and_others_their_own() -> None:
    tls, out = Listener(name="tls", port=1, tls=True), Listener(name="out", port=9192)
    found = served(tls, PLAIN, out)
    assert (found.first, found.further) == (PLAIN, (tls, out))
    assert found.left_out == {}
    assert [use.port for use in found.uses_of_broker(2)] == [3, 9194]
    config, warnings = BrokerConfig.parse(
        broker_properties(Cluster(name="demo"), 1, SITE, further=found.further).file,
    )
    assert warnings == []
    ends = [(end.listener, str(end)) for end in config.advertised_endpoints()]
    assert ends == [("PLAINTEXT", "127.0.0.1:9093"), ("TLS", "127.0.0.1:2"), ("OUT", "127.0.0.1:9193")]
    assert config.inter_broker_listener == "PLAINTEXT"
    assert addresses(PORTS, found, [0, 1]) == {
        "plain": "127.0.0.1:9092,127.0.0.1:9093",
        "tls": "127.0.0.1:1,127.0.0.1:2",
        "out": "127.0.0.1:9192,127.0.0.1:9193",
    }


def test_secured_listeners_have_certificates_and_the_authorizer_and_brokers_need_no_login() -> None:
    scram = Listener(name="scram", port=9193, tls=True, authentication=ListenerAuthentication(type="scram-sha-512"))
    pods = Listener(name="pods", port=9293, tls=True, authentication=ListenerAuthentication(type="serviceaccount"))
    found = served(scram, pods)
    assert found.first.name == "plaintext", "among the brokers"
    assert list(found.left_out) == ["pods"]
    cluster = Cluster(name="demo", listeners=(scram,), brokers=Brokers(config={"super.users": "User:root"}))
    properties = broker_properties(cluster, 1, SITE, further=found.further)
    config, warnings = BrokerConfig.parse(properties.file)
    assert warnings == []
    assert [str(end) for end in config.advertised_endpoints()] == ["127.0.0.1:9093", "127.0.0.1:9194"]
    assert properties.listeners["listener.security.protocol.map"] == "PLAINTEXT:PLAINTEXT,SCRAM:SASL_SSL"
    static = properties.static
    assert static["super.users"] == "User:root;User:ANONYMOUS"
    assert static["listener.name.scram.sasl.enabled.mechanisms"] == "SCRAM-SHA-512"
    assert static["ssl.keystore.location"].endswith("/secrets/demo-kafka-certs/broker-1.pem")
    assert "authorizer.class.name" not in broker_properties(cluster, 1, SITE).static


@pytest.mark.parametrize(
    ("port", "count", "why"),
    [
        (9095, 3, ""),
        (9094, 3, "it needs the ports 9094 to 9096, one for each broker, but 9094 is the port of broker 2."),
        (9090, 3, "it needs the ports 9090 to 9092, one for each broker, but 9092 is the port of broker 0."),
        (9095, 4, "it needs the ports 9095 to 9098, one for each broker, but 9095 is the port of broker 3."),
        (2181, 1, "it needs port 2181, but 2181 is the port of ZooKeeper."),
        (65_534, 3, "broker 2 would need port 65536, which does not exist."),
        (9193, 3, "it needs the ports 9193 to 9195, one for each broker, but 9193 is the port of listener out of"),
    ],
)
def test_a_listener_whose_ports_are_taken_is_not_served(port: int, count: int, why: str) -> None:
    out = Listener(name="out", port=9192)
    found = served(PLAIN, out, Listener(name="more", port=port), count=count)
    if why:
        assert f"Listener more of Cluster demo is not served: {why}" in found.left_out["more"]
        assert found.further == (out,)
    else:
        assert found.left_out == {}


def test_the_name_of_the_brokers_listener_is_reserved() -> None:
    found = served(PLAIN, Listener(name="plaintext", port=9192))
    assert "Rename the listener." in found.left_out["plaintext"]


keys = st.from_regex(r"[a-z.]{1,9}", fullmatch=True)
texts = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=9)


@given(st.dictionaries(keys, texts | st.sampled_from(["\\", " a  ", "a\nb", "\u2028", "#x", "=", "\\u0041"])))
def test_a_properties_file_is_read_as_it_was_written(pairs: dict[str, str]) -> None:
    assert parse_properties(render_properties(pairs)) == pairs
