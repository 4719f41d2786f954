"""The file of `odradek mirror`: names, filters, limits, and the login of each connection."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

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
    given = {
        "prefix": "",
        "groups": {"include": ["a.*"], "exclude": ["ab"]},
        "startingOffsets": "latest",
        "maxBytesPerSecond": 1000,
        "onDataLoss": "skip",
        "configurations": False,
        "acls": True,
        "partitions": False,
    }
    found = document(sources=[{**EAST, **given}], mirrorName="former", refreshSeconds=5, replicationFactor=2)
    assert (found["name"], found["refreshSeconds"], found["replicationFactor"]) == ("former", 5, 2)
    assert {name: found["sources"][0][name] for name in given} == given


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
    given = {"ssl.truststore.type": "JKS", "fetch.max.bytes": "1000"}
    (source,) = document(connection, sources=[{**EAST, "properties": given}])["sources"]
    assert given.items() <= source["properties"].items()


def test_each_connection_is_asked_for_with_its_field() -> None:
    given = {**EAST, "name": "west", "bootstrapServers": None, "cluster": "demo", "user": "alice"}
    sources = [EAST, {name: value for name, value in given.items() if value is not None}]
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
