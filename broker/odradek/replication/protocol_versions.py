"""What followers and leaders may do among themselves under an `inter.broker.protocol.version`."""

from __future__ import annotations

from typing import Final

from odradek.protocol.release_versions import Release, release_of

ALTER_PARTITION_SINCE: Final[Release] = (2, 7, 2)
"""Below it leaders write in-sync sets to ZooKeeper themselves (KIP-497)."""


def has_alter_partition(setting: str) -> bool:
    """Whether in-sync sets are committed by the controller."""
    return release_of(setting) >= ALTER_PARTITION_SINCE
