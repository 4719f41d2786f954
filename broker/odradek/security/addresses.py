"""Addresses of clients, which access rules and quotas compare as text."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address


def normal_address(text: str) -> str:
    """Return an IP address in one form: IPv6 in its shortest form, and IPv4 in IPv6 as IPv4, as Java does.

    Kafka's access rules have IPv6 addresses in Java's form, such as `0:0:0:0:0:0:0:1`, because Kafka compares the text.
    Raises `ValueError` if the text is not an address.
    """
    address = ip_address(text)
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


def host_and_port_of(address: object) -> tuple[str, int]:
    """Return the host as `host_of` and the port of a socket address; an empty text and 0 if it is no address of IP."""
    return host_of(address), int(address[1]) if isinstance(address, tuple) and len(address) >= 2 else 0


def host_of(address: object) -> str:
    """Return the host in a socket address in its normal form, or an empty text if it is no address of IP."""
    host = str(address[0]) if isinstance(address, tuple) and len(address) >= 2 else ""
    # The system has the shortest form already, so only IPv4 that a socket of IPv6 accepted differs.
    return host.removeprefix("::ffff:") if "." in host else host
