"""Basic types of the domain, so that the type checker distinguishes an offset from an epoch.

Scalars are `NewType`s without cost at run time. `TopicPartition` is a named tuple because it is the key of every
frequently used dictionary, and tuples are hashed in C.
"""

from __future__ import annotations

from typing import Final, NamedTuple, NewType
from uuid import UUID

Offset = NewType("Offset", int)
"""Position of a record in a partition, 0 .. 2**63 - 1."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Epoch of a partition's leader; grows with each election."""

ControllerEpoch = NewType("ControllerEpoch", int)
"""Epoch of a controller, from the znode `/controller_epoch`."""

BrokerEpoch = NewType("BrokerEpoch", int)
"""Epoch of a broker: the czxid of its registration znode (KIP-380)."""

BrokerId = NewType("BrokerId", int)

NO_OFFSET: Final = -1
NO_EPOCH: Final = -1
NO_BROKER: Final = -1
NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_SEQUENCE: Final = -1

EARLIEST_TIMESTAMP: Final = -2
LATEST_TIMESTAMP: Final = -1
MAX_TIMESTAMP: Final = -3
"""Special timestamps of ListOffsets (KIP-79, KIP-734)."""

READ_COMMITTED: Final = 1
"""Isolation level of clients that see only records of committed transactions (KIP-98)."""

ZERO_UUID: Final = UUID(int=0)

GROUP_METADATA_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
INTERNAL_TOPICS: Final = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC})


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """The partition as `topic-partition`, which is also the name of its log directory."""
        return f"{self.topic}-{self.partition}"


class Endpoint(NamedTuple):
    """Address of a listener: its name, host, port and security protocol."""

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        """The endpoint as `host:port`."""
        return f"{self.host}:{self.port}"
