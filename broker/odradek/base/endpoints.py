"""Parses listener settings: `NAME://host:port`, and the security protocol of each name.

`base/config` uses it. Pure; an invalid entry raises a `ConfigError` that says what is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.base.errors import ConfigError
from odradek.base.types import Endpoint


def parse_endpoint(key: str, item: str, protocols: Mapping[str, str]) -> Endpoint:
    """Parse one entry of the setting `key`. `protocols`: by listener name in capitals. An empty host means all
    addresses."""
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
    """Parse `NAME:PROTOCOL` into a pair in capitals."""
    name, _, protocol = entry.partition(":")
    return name.strip().upper(), protocol.strip().upper()
