"""The nouns of the field as types, so that an offset never passes for an epoch.

Scalars are `NewType`s: free at run time, told apart by the type checker. `TopicPartition` is a named tuple
because it is the key of every hot dictionary, and a tuple hashes in C.
"""

from __future__ import annotations

from typing import Final, NamedTuple, NewType
from uuid import UUID

Offset = NewType("Offset", int)
"""Position of a record in a partition, 0 .. 2**63 - 1."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Reign of a partition's leader; grows with each election."""

ControllerEpoch = NewType("ControllerEpoch", int)
"""Reign of a controller, from the znode `/controller_epoch`."""

BrokerEpoch = NewType("BrokerEpoch", int)
"""Life of a broker: the czxid of its registration znode (KIP-380)."""

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

ZERO_UUID: Final = UUID(int=0)

GROUP_METADATA_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
INTERNAL_TOPICS: Final = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC})


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """Kafka's name of it, also the name of its log directory: `topic-partition`."""
        return f"{self.topic}-{self.partition}"


class Endpoint(NamedTuple):
    """Where a listener is reached: name of the listener, host, port, security protocol."""

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        """The endpoint as `host:port`."""
        return f"{self.host}:{self.port}"
