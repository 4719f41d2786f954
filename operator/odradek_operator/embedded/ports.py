"""Checks that the ports of the embedded cluster are free before anything is started."""

from __future__ import annotations

import socket
from typing import Final, NamedTuple

from odradek_operator.errors import EmbeddedError

LOOPBACK: Final = "127.0.0.1"


class PortUse(NamedTuple):
    """A port to use, its user, and the option that changes it."""

    port: int
    user: str
    option: str


def is_free(port: int) -> bool:
    """Whether a server could listen on this port of the loopback address."""
    with socket.socket() as probe:
        # Servers set it, too. Without it, a port whose connections are still closing would appear to be in use.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def check_ports(uses: list[PortUse]) -> None:
    """Raise `EmbeddedError` if ports are in use, used twice or invalid. The message names the options to change."""
    seen: dict[int, str] = {}
    for use in uses:
        if not 0 < use.port < 65_536:
            raise EmbeddedError(f"{use.user} would need port {use.port}, which does not exist: change {use.option}.")
        if use.port in seen:
            raise EmbeddedError(f"{use.user} and {seen[use.port]} both need port {use.port}: change {use.option}.")
        seen[use.port] = use.user
    taken = [use for use in uses if not is_free(use.port)]
    if not taken:
        return
    users = " and ".join(f"{use.port} (for {use.user})" for use in taken)
    options = ", ".join(dict.fromkeys(use.option for use in taken))
    noun, verb = ("Port", "is") if len(taken) == 1 else ("Ports", "are")
    raise EmbeddedError(f"{noun} {users} of {LOOPBACK} {verb} in use: stop what listens there, or change {options}.")
