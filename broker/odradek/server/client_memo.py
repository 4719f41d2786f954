"""What the data path remembers about the client of a connection, so that each request does not look it up again.

Every connection has its own memo, so memory is bounded by the number of connections. Users of a memo check that what
they kept is still current.
"""

from __future__ import annotations

from typing import Final

from odradek.network.connection import Request
from odradek.security.principals import Identity
from odradek.server.throttling.charges import Account


class ClientMemo:
    """What is known about one client. A change of its identity replaces the memo."""

    __slots__ = ("account", "identity", "rules", "writable")

    def __init__(self, identity: Identity) -> None:
        """Know nothing yet."""
        self.identity: Final = identity
        self.account: Account | None = None
        """The quotas of the client, for `server/throttling`."""
        self.rules: object = None
        """The generation of the access rules by which `writable` was decided."""
        self.writable: frozenset[str] = frozenset()
        """Topics that the client may write, for `server/authorization/topic_rights`."""


def memo_of(request: Request) -> ClientMemo:
    """Return what is known about the client of a request."""
    connection = request.connection
    memo = connection.memo
    if isinstance(memo, ClientMemo) and memo.identity is connection.identity:
        return memo
    fresh = connection.memo = ClientMemo(request.identity)
    return fresh
