"""Listeners as a broker's settings write them: `NAME://host:port`, and the protocol of each name.

Called by `base/config`. Pure; what makes no sense is a `ConfigError` that says what is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.base.errors import ConfigError
from odradek.base.types import Endpoint


def parse_endpoint(key: str, item: str, protocols: Mapping[str, str]) -> Endpoint:
    """One entry of the setting `key`; `protocols` by listener name in capitals. An empty host is every address."""
    name, separator, address = item.partition("://")
    host, colon, port = address.rpartition(":")
    if not separator or not colon or not port.isdecimal() or int(port) > 65_535:
        raise ConfigError(f"{key} has {item!r}: each entry must be NAME://host:port")
    protocol = protocols.get(name.upper())
    if protocol != "PLAINTEXT":
        raise ConfigError(
            f"{key} has {item!r}, whose security protocol is {protocol}: this version supports PLAINTEXT only"
        )
    return Endpoint(name.upper(), host.strip("[]"), int(port), protocol)


def parse_pair(entry: str) -> tuple[str, str]:
    """`NAME:PROTOCOL` in capitals."""
    name, _, protocol = entry.partition(":")
    return name.strip().upper(), protocol.strip().upper()
