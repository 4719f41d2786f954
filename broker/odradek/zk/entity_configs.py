"""Changes of the settings of users, client ids and addresses in `/config`, which quotas and credentials share.

Invariants: a change is one transaction with its notification; it keeps everything that it does not name; a znode that
cannot be decoded is not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from odradek.zk import layout
from odradek.zk.layout import ConfigChangeNotification
from odradek.zk.port import BadVersion, Create, NodeExists, NoNode, Operation, SetData, ZkClient

ATTEMPTS: Final = 10
"""Number of times that a change is tried while others change the same znode."""

EntityChange = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Returns the new settings. It is called again with other ones if somebody else changes them first."""


async def change_entity_config(zk: ZkClient, path: str, change: EntityChange) -> None:
    """Change the settings in `/config/PATH`, and notify all brokers. Writes nothing if they stay the same.

    Raises what `change` raises, `LayoutError` if the znode cannot be decoded, and `ZkError`, which leaves it open
    whether the change was made.
    """
    znode = f"{layout.CONFIG}/{path}"
    for _ in range(ATTEMPTS):
        found = await zk.get_or_none(znode)
        before = {} if found is None else layout.decode_config(znode, found[0])
        after = change(before)
        if after == before:
            return
        if found is None:
            await zk.ensure_path(znode.rpartition("/")[0])
        data = layout.encode_config(after)
        write: Operation = Create(znode, data) if found is None else SetData(znode, data, found[1].version)
        try:
            await zk.multi([write, _notification(path)])
            return
        except (BadVersion, NodeExists, NoNode):
            continue
    raise BadVersion(f"other changes came first {ATTEMPTS} times: try again", znode)


def _notification(path: str) -> Operation:
    prefix = f"{layout.CONFIG_CHANGES}/{layout.CONFIG_CHANGE_PREFIX}"
    return Create(prefix, ConfigChangeNotification(entity_path=path).encode(), sequential=True)
