"""The ACLs of znodes that brokers and the operator create.

`zk/kazoo_client` calls it for each znode that it creates, with the path below the chroot. The rules are the same as in
Kafka (`zookeeper.set.acl`, https://kafka.apache.org/39/documentation.html#zk_authz), so that Java brokers can use the
same znodes. Pure.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from odradek.security.tokens import TOKENS
from odradek.zk import layout

READ: Final = 1
ALL: Final = 31
"""ZooKeeper's bits for read, write, create, delete and administer."""

SENSITIVE: Final = (*layout.SENSITIVE_CONFIGS, TOKENS)
"""Prefixes of the paths of znodes that may contain secrets, so that only brokers may read them. Kafka also compares
prefixes."""


class Acl(NamedTuple):
    """One entry of an ACL: an identity and its permissions."""

    permissions: int
    scheme: str
    identity: str


_OPEN: Final = (Acl(ALL, "world", "anyone"),)
_READERS: Final = Acl(READ, "world", "anyone")
CREATOR: Final = ("auth", "")
"""The owner of znodes by default. The server replaces it with each identity of the session that creates the znode."""


def acls_for(path: str, *, secure: bool, owner: tuple[str, str] = CREATOR) -> tuple[Acl, ...]:
    """Return the ACL of a new znode. It allows everyone everything unless `secure` is set.

    `owner`: the scheme and the identity that may change the znode. The ACL of `/consumers` is always open, because old
    consumers create znodes below it.
    """
    if not secure or path == layout.CONSUMERS:
        return _OPEN
    owns = Acl(ALL, *owner)
    return (owns,) if path.startswith(SENSITIVE) else (owns, _READERS)
