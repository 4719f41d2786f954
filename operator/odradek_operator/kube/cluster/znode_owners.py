"""Gives the znodes of a closed ensemble to the brokers.

Brokers and operator create znodes with ACLs only when all of them connect with a certificate. The loop of a cluster
calls `own_znodes` once, when every broker does so, for the znodes that are older.
"""

from __future__ import annotations

from odradek.zk.port import ZkClient

_SYSTEM = "/zookeeper"
"""ZooKeeper's own znodes, which have other ACLs."""


async def own_znodes(zk: ZkClient) -> int:
    """Reset the ACLs of all znodes, the outermost first. Returns their number. Raises `ZkError`.

    A znode that is created meanwhile by a client with ACLs has one already.
    """
    level, count = ["/"], 0
    while level:
        await zk.reset_acls(level)
        count += len(level)
        children = await zk.children_many(level)
        paths = [f"{parent.rstrip('/')}/{name}" for parent, found in children.items() for name in found or ()]
        level = [path for path in paths if path != _SYSTEM]
    return count
