"""The errors that clients of coordinators get when records cannot be stored.

Each API has a table, which begins with `COMMON_ERRORS` and adds the errors that its clients expect.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from odradek.base.errors import (
    CoordinatorNotAvailableError,
    KafkaStorageError,
    NotCoordinatorError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    ProtocolError,
    UnknownTopicOrPartitionError,
)

ErrorTable = Mapping[type[ProtocolError], type[ProtocolError]]
"""The error for clients by the error of a failed append."""

COMMON_ERRORS: Final[ErrorTable] = MappingProxyType(
    {
        UnknownTopicOrPartitionError: CoordinatorNotAvailableError,
        NotEnoughReplicasError: CoordinatorNotAvailableError,
        NotEnoughReplicasAfterAppendError: CoordinatorNotAvailableError,
        NotLeaderOrFollowerError: NotCoordinatorError,
        KafkaStorageError: NotCoordinatorError,
    }
)
"""The part that all tables have in common."""


def translated(error: ProtocolError, table: ErrorTable) -> ProtocolError:
    """Return the error for a client whose append failed with `error`. Errors that are not in the table stay."""
    kind = table.get(type(error))
    return error if kind is None else kind(str(error))
