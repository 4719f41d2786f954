"""Mirrors for tests, as objects and as the operator reads them. Pure."""

from __future__ import annotations

from typing import Any

from odradek_operator.crds import Mirror, read_object
from odradek_operator.mirrors.mirror_file import MirrorConnections
from odradek_operator.security.client_connection import ClientConnection

NAME = "flights"
UID = "5f0d1f0e-4b0a-4f0b-8a54-6a3e5b1b7a11"
EAST: dict[str, Any] = {"name": "east", "bootstrapServers": "east:9092", "topics": {"include": ["departures.*"]}}
PLAIN = MirrorConnections(
    target=ClientConnection(bootstrap_servers="demo-kafka-bootstrap.shop.svc:9092"),
    sources={"east": ClientConnection(bootstrap_servers="east:9092")},
)


def mirror_body(namespace: str = "shop", **spec: Any) -> dict[str, Any]:
    """Return a Mirror as an object. A field that is None is left out."""
    whole: dict[str, Any] = {"target": {"cluster": "demo"}, "sources": [EAST], **spec}
    return {
        "apiVersion": "odradek.dev/v1",
        "kind": "Mirror",
        "metadata": {"name": NAME, "namespace": namespace},
        "spec": {name: value for name, value in whole.items() if value is not None},
    }


def mirror(**spec: Any) -> Mirror:
    """Return a Mirror as the operator reads it."""
    body = mirror_body(**spec)
    body["metadata"]["uid"] = UID
    found = read_object(body)
    assert isinstance(found, Mirror)
    return found
