"""What `inter.broker.protocol.version` allows between followers and leaders."""

from __future__ import annotations

from typing import Final

from odradek.protocol.release_versions import Release, release_of

ALTER_PARTITION_SINCE: Final[Release] = (2, 7, 2)
"""Below this version leaders write the ISR to ZooKeeper themselves (KIP-497)."""


def has_alter_partition(setting: str) -> bool:
    """Whether the controller commits ISR changes."""
    return release_of(setting) >= ALTER_PARTITION_SINCE
