"""Who may do what with a znode that a broker makes.

A path below the chroot enters, the list for the znode's creation leaves; called by `zk/client` for each znode that it
makes. The rules are Kafka's (`zookeeper.set.acl`, https://kafka.apache.org/39/documentation.html#zk_authz), so that
Java brokers and ours share a tree. Pure.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from odradek.zk import layout

READ: Final = 1
ALL: Final = 31
"""Read, write, create, delete and administer, as ZooKeeper numbers them."""

DELEGATION_TOKENS: Final = "/delegation_token/tokens"

SENSITIVE: Final = (*layout.SENSITIVE_CONFIGS, DELEGATION_TOKENS)
"""What begins so may hold secrets, and nobody but the brokers reads it. Kafka compares beginnings of paths too."""


class Acl(NamedTuple):
    """One entry of a znode's list: whoever has the identity has the permissions."""

    permissions: int
    scheme: str
    identity: str


_OPEN: Final = (Acl(ALL, "world", "anyone"),)
# The server puts each identity of the session that creates the znode in place of the scheme "auth".
_CREATOR: Final = (Acl(ALL, "auth", ""),)
_CREATOR_AND_READERS: Final = (*_CREATOR, Acl(READ, "world", "anyone"))


def acls_for(path: str, *, secure: bool) -> tuple[Acl, ...]:
    """The list for a new znode; open to everybody unless `secure`.

    The parent of the old consumers' znodes stays open: they are not the brokers' to make.
    """
    if not secure or path == layout.CONSUMERS:
        return _OPEN
    return _CREATOR if path.startswith(SENSITIVE) else _CREATOR_AND_READERS
