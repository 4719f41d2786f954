"""The version of a request between brokers under an `inter.broker.protocol.version`.

`leader_channel`, `request_sender` and `marker_sender` look up the highest version that may be sent. During an upgrade,
the setting limits newer brokers to the versions that the older ones understand, whatever both announce.
AddPartitionsToTxn is not listed: as in Kafka, brokers verify transactions in the highest version that both support, and
do not verify those of a coordinator that does not support version 4, as before Kafka 3.6.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from odradek.protocol.apis import ApiKey

Release = tuple[int, int, int]
"""Two numbers of a release and that of its `-IV`; the last one of the release if the setting has none."""

_LAST_STEP: Final = 99

_SINCE: Final[Mapping[ApiKey, tuple[tuple[Release, int], ...]]] = {
    ApiKey.FETCH: (
        ((3, 9, 0), 17),
        ((3, 7, 4), 16),
        ((3, 5, 1), 15),
        ((3, 5, 0), 14),
        ((3, 1, 0), 13),
        ((2, 7, 1), 12),
        ((2, 3, 1), 11),
        ((2, 1, 2), 10),
        ((2, 0, 1), 8),
        ((1, 1, 0), 7),
        ((0, 11, 1), 5),
        ((0, 11, 0), 4),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (((2, 8, 0), 4), ((2, 3, 1), 3), ((2, 1, 1), 2), ((2, 0, 0), 1)),
    ApiKey.LIST_OFFSETS: (
        ((3, 5, 0), 8),
        ((3, 0, 1), 7),
        ((2, 8, 0), 6),
        ((2, 2, 1), 5),
        ((2, 1, 1), 4),
        ((2, 0, 1), 3),
        ((0, 11, 0), 2),
    ),
    ApiKey.LEADER_AND_ISR: (
        ((3, 4, 0), 7),
        ((3, 2, 0), 6),
        ((2, 8, 1), 5),
        ((2, 4, 1), 4),
        ((2, 4, 0), 3),
        ((2, 2, 0), 2),
        ((1, 0, 0), 1),
    ),
    ApiKey.UPDATE_METADATA: (
        ((3, 4, 0), 8),
        ((2, 8, 1), 7),
        ((2, 4, 1), 6),
        ((2, 2, 0), 5),
        ((1, 0, 0), 4),
        ((0, 11, 0), 3),
        ((0, 10, 1), 2),
    ),
    ApiKey.STOP_REPLICA: (((3, 4, 0), 4), ((2, 6, 0), 3), ((2, 4, 1), 2), ((2, 2, 0), 1)),
    ApiKey.WRITE_TXN_MARKERS: (((2, 8, 0), 1),),
}
"""For each API the releases that raised its version, newest first."""

_OLDEST: Final[Mapping[ApiKey, int]] = {
    ApiKey.FETCH: 3,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 0,
    ApiKey.LIST_OFFSETS: 1,
    ApiKey.LEADER_AND_ISR: 0,
    ApiKey.UPDATE_METADATA: 1,
    ApiKey.STOP_REPLICA: 0,
    ApiKey.WRITE_TXN_MARKERS: 0,
}
TOPIC_IDS_SINCE: Final[Release] = (2, 8, 0)
"""First protocol version with topic ids (KIP-516)."""
ALTER_PARTITION_SINCE: Final[Release] = (2, 7, 2)
"""Below this protocol version leaders write the ISR to ZooKeeper themselves (KIP-497)."""


def release_of(setting: str) -> Release:
    """Parse a release that `BrokerConfig` has checked: `2.7`, `2.7-IV1`, `0.11.0`, `3.9-IV0`."""
    release, _, step = setting.partition("-IV")
    major, minor = release.split(".")[:2]
    return int(major), int(minor), int(step) if step.isdecimal() else _LAST_STEP


def has_topic_ids(setting: str) -> bool:
    """Whether the controller assigns topic ids and sends them to brokers."""
    return release_of(setting) >= TOPIC_IDS_SINCE


def has_alter_partition(setting: str) -> bool:
    """Whether the controller commits ISR changes."""
    return release_of(setting) >= ALTER_PARTITION_SINCE


def highest_version(api_key: ApiKey, setting: str) -> int:
    """Return the highest version of an API that may be sent to another broker. Raises `KeyError` for an unlisted
    API."""
    release = release_of(setting)
    return next((version for since, version in _SINCE[api_key] if release >= since), _OLDEST[api_key])
