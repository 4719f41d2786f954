"""The file of `odradek mirror`: names, filters, limits, and the login of each connection."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from odradek.mirror.mirror_config import MirrorConfig
from odradek_operator.mirrors.mirror_file import MirrorConnections, connection_wishes, mirror_file
from odradek_operator.security.client_connection import ClientConnection
from odradek_operator_testkit.mirrors import EAST, PLAIN, mirror

TARGET = PLAIN.target


def document(connection: ClientConnection = PLAIN.sources["east"], **spec: Any) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(
        mirror_file(mirror(**spec), MirrorConnections(target=TARGET, sources={"east": connection}))
    )
    return found


def test_what_is_not_set_has_the_defaults_of_the_resource() -> None:
    assert document() == {
        "name": "shop-flights",
        "target": {"bootstrapServers": "demo-kafka-bootstrap.shop.svc:9092"},
        "sources": [
            {
                "name": "east",
                "bootstrapServers": "east:9092",
                "topics": {"include": ["departures.*"], "exclude": []},
                "groups": {"include": [], "exclude": []},
                "startingOffsets": "earliest",
                "onDataLoss": "fail",
                "configurations": True,
                "acls": False,
                "partitions": True,
            }
        ],
        "refreshSeconds": 30,
        "groupsSeconds": 10,
        "internalReplicationFactor": 3,
    }


def test_what_is_set_is_in_the_file() -> None:
    fields = {
        "prefix": "",
        "groups": {"include": ["a.*"], "exclude": ["ab"]},
        "startingOffsets": "latest",
        "maxBytesPerSecond": 1000,
        "onDataLoss": "skip",
        "configurations": False,
        "acls": True,
        "partitions": False,
    }
    found = document(sources=[{**EAST, **fields}], mirrorName="former", refreshSeconds=5, replicationFactor=2)
    assert (found["name"], found["refreshSeconds"], found["replicationFactor"]) == ("former", 5, 2)
    assert {name: found["sources"][0][name] for name in fields} == fields


@pytest.mark.parametrize(
    ("connection", "expected"),
    [
        (
            ClientConnection(bootstrap_servers="b:1", secret="alice"),
            {"configFile": "/etc/odradek-logins/source-east/client.properties"},
        ),
        (
            ClientConnection(bootstrap_servers="b:1", authority="ca"),
            {
                "properties": {
                    "security.protocol": "SSL",
                    "ssl.truststore.type": "PEM",
                    "ssl.truststore.location": "/etc/odradek-logins/source-east/ca.crt",
                }
            },
        ),
        (
            ClientConnection(bootstrap_servers="b:1", authority="ca", audience="shop.demo"),
            {
                "properties": {
                    "security.protocol": "SASL_SSL",
                    "sasl.mechanism": "OAUTHBEARER",
                    "sasl.oauthbearer.token.endpoint.url": "file:///etc/odradek-logins/source-east/token",
                    "ssl.truststore.type": "PEM",
                    "ssl.truststore.location": "/etc/odradek-logins/source-east/ca.crt",
                }
            },
        ),
    ],
)
def test_logins(connection: ClientConnection, expected: dict[str, Any]) -> None:
    (source,) = document(connection)["sources"]
    assert {key: source.get(key) for key in ("configFile", "properties") if key in source} == expected
    assert source["bootstrapServers"] == "b:1"


def test_properties_of_the_resource_come_last() -> None:
    connection = ClientConnection(bootstrap_servers="b:1", authority="ca")
    fields = {"ssl.truststore.type": "JKS", "fetch.max.bytes": "1000"}
    (source,) = document(connection, sources=[{**EAST, "properties": fields}])["sources"]
    assert fields.items() <= source["properties"].items()


TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30)
FILTERS = st.fixed_dictionaries({"include": st.lists(TEXT.map(re.escape), min_size=1, max_size=3)})
SOURCES = st.fixed_dictionaries(
    {"name": st.from_regex(r"[A-Za-z0-9_-]{1,20}", fullmatch=True), "topics": FILTERS, "groups": FILTERS},
    optional={
        "prefix": st.from_regex(r"[A-Za-z0-9._-]{0,20}", fullmatch=True),
        "startingOffsets": st.sampled_from(["earliest", "latest"]),
        "maxBytesPerSecond": st.integers(1, 10**15),
        "onDataLoss": st.sampled_from(["fail", "skip"]),
        "configurations": st.booleans(),
        "acls": st.booleans(),
        "partitions": st.booleans(),
        "properties": st.dictionaries(st.sampled_from(["client.dns.lookup", "x", "y"]), TEXT),
    },
)
CONNECTIONS = st.sampled_from(
    [
        ClientConnection(bootstrap_servers="b:1"),
        ClientConnection(bootstrap_servers="b:1,c:2", secret="alice"),
        ClientConnection(bootstrap_servers="b:1", authority="ca", audience="shop.demo"),
    ]
)


@given(st.lists(SOURCES, min_size=1, max_size=3, unique_by=lambda source: source["name"]), CONNECTIONS)
def test_the_command_reads_what_the_resource_says(given_sources: list[dict[str, Any]], connection: Any) -> None:
    sources = [{**source, "bootstrapServers": "b:1"} for source in given_sources]
    what = mirror(sources=sources)
    connections = MirrorConnections(target=connection, sources={source["name"]: connection for source in sources})
    found = MirrorConfig.parse(mirror_file(what, connections), "mirror.yaml", read_file=lambda _: {"from": "file"})
    assert found.name == what.name_in_target
    for wanted, source in zip(what.sources, found.sources, strict=True):
        assert source.name == wanted.name
        assert source.topics.include == wanted.topics.include
        assert source.groups.include == wanted.groups.include
        assert source.prefix == (f"{wanted.name}." if wanted.prefix is None else wanted.prefix)
        assert source.starting_offsets == wanted.starting_offsets
        assert source.max_bytes_per_second == wanted.max_bytes_per_second
        assert source.on_data_loss == wanted.on_data_loss
        assert (source.configurations, source.acls, source.partitions) == (
            wanted.configurations,
            wanted.acls,
            wanted.partitions,
        )
        assert source.address.bootstrap_servers == connection.bootstrap_servers
        assert wanted.properties.items() <= source.address.properties.items()
        assert ("from" in source.address.properties) == (connection.secret is not None)


def test_each_connection_is_asked_for_with_its_field() -> None:
    fields = {**EAST, "name": "west", "bootstrapServers": None, "cluster": "demo", "user": "alice"}
    sources = [EAST, {name: value for name, value in fields.items() if value is not None}]
    found = connection_wishes(mirror(sources=sources))
    assert {side: wish.field for side, wish in found.items()} == {
        "target": "spec.target",
        "source-east": "spec.sources[0]",
        "source-west": "spec.sources[1]",
    }
    assert (found["source-west"].cluster, found["source-west"].user) == ("demo", "alice")
    assert {wish.account for wish in found.values()} == {"flights-odradek-mirror"}


def test_secrets_that_pods_mount_are_named_once() -> None:
    user = ClientConnection(bootstrap_servers="b:1", secret="alice")
    token = ClientConnection(bootstrap_servers="b:1", authority="ca", audience="shop.demo")
    assert MirrorConnections(target=user, sources={"a": user, "b": token}).secrets() == ["alice", "ca"]
