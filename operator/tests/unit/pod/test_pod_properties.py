"""The final properties of a broker, read as the broker reads them."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.base.config import BrokerConfig
from odradek.base.setting_definitions import parse_properties
from odradek_operator.errors import PodError
from odradek_operator.objects.names import BrokerLink
from odradek_operator.objects.properties_file import render
from odradek_operator.pod.addresses import Address
from odradek_operator.pod.identity import BrokerPod, PodListener
from odradek_operator.pod.pod_properties import final_properties, own_properties, supervised, value_of, with_secrets

POD = BrokerPod(
    cluster="demo",
    name="demo-kafka-7",
    namespace="events",
    node="a",
    broker_id=7,
    listeners=(
        PodListener(name="plain", port=9092, type="internal"),
        PodListener(name="out", port=9094, type="nodeport"),
    ),
    rack_key="zone",
)
FOUND = [Address("demo-kafka-7.demo-kafka-brokers.events.svc", 9092), Address("10.0.0.1", 31_000)]
MOUNTED = render(
    {
        "zookeeper.connect": "zk:2181",
        "log.dirs": "/var/lib/odradek/data-0/kafka-log",
        "broker.id": "99",
        "odd": " value \\ with ümlaut ",
    },
    header="Written by the operator",
)


def test_the_broker_reads_the_final_properties() -> None:
    config, warnings = BrokerConfig.parse(parse_properties(final_properties(MOUNTED, POD, FOUND, "zone-a")))
    assert [warning for warning in warnings if "odd" not in warning] == []
    assert config.broker_id == 7
    assert config.broker_rack == "zone-a"
    assert config.broker_machine == "a"
    assert config.inter_broker_listener == "REPLICATION"
    assert [(end.listener, end.host, end.port) for end in config.listener_endpoints()] == [
        ("REPLICATION", "0.0.0.0", 9091),
        ("PLAIN", "0.0.0.0", 9092),
        ("OUT", "0.0.0.0", 9094),
    ]
    assert [(end.listener, end.host, end.port) for end in config.advertised_endpoints()] == [
        ("REPLICATION", "demo-kafka-7.demo-kafka-brokers.events.svc", 9091),
        ("PLAIN", "demo-kafka-7.demo-kafka-brokers.events.svc", 9092),
        ("OUT", "10.0.0.1", 31_000),
    ]
    assert (config.metrics_host, config.metrics_port) == ("0.0.0.0", 9404)


def test_the_clusters_properties_stay_as_they_are() -> None:
    pairs = parse_properties(final_properties(MOUNTED, POD, FOUND, None))
    assert pairs["odd"] == " value \\ with ümlaut "
    assert pairs["log.dirs"] == "/var/lib/odradek/data-0/kafka-log"
    assert "broker.rack" not in pairs


def test_an_address_of_version_6_is_bracketed() -> None:
    own = own_properties(POD, [FOUND[0], Address("fd00::1", 31_000)], None)
    assert own["advertised.listeners"].endswith(",OUT://[fd00::1]:31000")


@pytest.mark.parametrize("rack", ["a\nb", "a\\b"])
def test_a_rack_that_a_file_cannot_hold_is_refused(rack: str) -> None:
    with pytest.raises(PodError, match="not allowed in properties"):
        own_properties(POD, FOUND, rack)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("process.supervision.enable=true\n", True),
        ("process.supervision.enable = FALSE\n", False),
        ("# process.supervision.enable=false\n", True),
        ("process.supervision.enable=false\nprocess.supervision.enable=true\n", True),
    ],
)
def test_whether_the_broker_runs_under_a_parent_process(text: str, expected: bool) -> None:
    assert supervised(text) is expected


@given(
    st.dictionaries(
        st.from_regex(r"[a-z][a-z.]{0,8}", fullmatch=True),
        st.from_regex(r"[A-Za-z0-9/:,;._-]{1,12}", fullmatch=True),
        max_size=5,
    )
)
def test_plain_values_are_read_as_the_broker_reads_them(pairs: dict[str, str]) -> None:
    text = render(pairs, header="h")
    assert {key: value_of(text, key) for key in pairs} == parse_properties(text)


def test_properties_from_secrets_come_after_the_mounted_text_and_before_those_of_the_pod() -> None:
    text = with_secrets("password=old\nbroker.id=7\n", {"password": "a\\b= #", "broker.id": "9"})
    final = parse_properties(final_properties(text, POD, FOUND, None))
    assert final["password"] == "a\\b= #"
    assert final["broker.id"] == str(POD.broker_id), "what the operator sets cannot be replaced"
    assert with_secrets("a=b\n", {}) == "a=b\n"


@pytest.mark.parametrize(
    ("link", "listened", "used", "others"),
    [
        (BrokerLink.PLAINTEXT, ["REPLICATION"], "REPLICATION", ()),
        (BrokerLink.BOTH, ["REPLICATION", "REPLICATIONTLS"], "REPLICATION", ("REPLICATIONTLS",)),
        (BrokerLink.CHANGED, ["REPLICATION", "REPLICATIONTLS"], "REPLICATIONTLS", ("REPLICATION",)),
        (BrokerLink.TLS, ["REPLICATIONTLS"], "REPLICATIONTLS", ()),
    ],
)
def test_brokers_change_to_tls_among_themselves(
    link: BrokerLink, listened: list[str], used: str, others: tuple[str, ...]
) -> None:
    pod = dataclasses.replace(
        POD, link=link, listeners=(PodListener(name="s", port=9093, type="internal", protocol="SSL"),)
    )
    mounted = render(
        {"zookeeper.connect": "zk:2181", "ssl.keystore.type": "PEM", "log.dirs": "/data"}, header="Written"
    )
    config, warnings = BrokerConfig.parse(parse_properties(final_properties(mounted, pod, FOUND[:1], None)))
    assert warnings == []
    assert [end.listener for end in config.listener_endpoints()] == [*listened, "S"]
    assert config.inter_broker_listener == used
    assert config.inter_broker_request_listeners == others
    assert own_properties(pod, FOUND[:1], None)["listener.security.protocol.map"].endswith("S:SSL")
    keystore = "/etc/odradek-certificates/broker-7.pem"
    assert (own_properties(pod, FOUND[:1], None).get("ssl.keystore.location") == keystore) == link.listens_tls
