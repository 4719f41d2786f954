"""The file of `odradek mirror` (docs/design/0032), from a Mirror and its connections. Pure.

The file has no secrets: everybody who may read ConfigMaps of the namespace reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from odradek_operator.crds.types import Mirror, MirrorSide, MirrorSource
from odradek_operator.mirrors import mirror_names as names
from odradek_operator.objects.names import CLIENT_CONFIG_FILE
from odradek_operator.security.client_connection import ClientConnection, ConnectionWish


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorConnections:
    """How a mirror connects to its clusters."""

    target: ClientConnection
    sources: Mapping[str, ClientConnection]
    """By name of the source."""

    def by_side(self) -> dict[str, ClientConnection]:
        """Return all connections, by the names that their folders have."""
        sources = {names.source_side(name): connection for name, connection in self.sources.items()}
        return {names.TARGET: self.target, **sources}

    def secrets(self) -> list[str]:
        """Return the names of the Secrets that the pods mount, each once."""
        found = [name for each in self.by_side().values() for name in (each.secret, each.authority) if name is not None]
        return sorted(set(found))


def connection_wishes(mirror: Mirror) -> dict[str, ConnectionWish]:
    """Return what the resource says about its connections, by the names that their folders have."""
    found = {names.TARGET: _wish(mirror, mirror.target, "spec.target")}
    for index, source in enumerate(mirror.sources):
        found[names.source_side(source.name)] = _wish(mirror, source, f"spec.sources[{index}]")
    return found


def _wish(mirror: Mirror, side: MirrorSide, field: str) -> ConnectionWish:
    return ConnectionWish(
        field=field,
        account=names.mirror_objects_name(mirror.name),
        cluster=side.cluster,
        bootstrap_servers=side.bootstrap_servers,
        user=side.user,
        secret=side.secret,
    )


def mirror_file(mirror: Mirror, connections: MirrorConnections) -> str:
    """Return the text of the file. The same resource and connections always give the same text."""
    document: dict[str, Any] = {
        "name": mirror.name_in_target,
        "target": _address(names.TARGET, mirror.target, connections.target),
        "sources": [_source(source, connections.sources[source.name]) for source in mirror.sources],
        "refreshSeconds": mirror.refresh_seconds,
        "groupsSeconds": mirror.groups_seconds,
        "internalReplicationFactor": mirror.internal_replication_factor,
    }
    if mirror.replication_factor is not None:
        document["replicationFactor"] = mirror.replication_factor
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)


def _source(source: MirrorSource, connection: ClientConnection) -> dict[str, Any]:
    optional = {"prefix": source.prefix, "maxBytesPerSecond": source.max_bytes_per_second}
    return {
        "name": source.name,
        **_address(names.source_side(source.name), source, connection),
        "topics": {"include": list(source.topics.include), "exclude": list(source.topics.exclude)},
        "groups": {"include": list(source.groups.include), "exclude": list(source.groups.exclude)},
        "startingOffsets": source.starting_offsets,
        "onDataLoss": source.on_data_loss,
        "configurations": source.configurations,
        "acls": source.acls,
        "partitions": source.partitions,
        **{name: value for name, value in optional.items() if value is not None},
    }


def _address(side: str, given: MirrorSide, connection: ClientConnection) -> dict[str, Any]:
    found: dict[str, Any] = {"bootstrapServers": connection.bootstrap_servers}
    if connection.secret is not None:
        found["configFile"] = f"{names.login_folder(side)}/{CLIENT_CONFIG_FILE}"
    if properties := {**_login(side, connection), **given.properties}:
        found["properties"] = properties
    return found


def _login(side: str, connection: ClientConnection) -> dict[str, str]:
    """Return the properties for the authority and the token of a folder. A Secret has a file with its own."""
    if connection.authority is None:
        return {}
    folder = names.login_folder(side)
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": f"{folder}/ca.crt"}
    if connection.audience is None:
        return {"security.protocol": "SSL", **trust}
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": f"file://{folder}/token",
        **trust,
    }
