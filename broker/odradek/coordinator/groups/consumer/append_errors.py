"""The errors that members of consumer groups get when their records cannot be stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from odradek.base.errors import (
    CoordinatorNotAvailableError,
    KafkaStorageError,
    MessageTooLargeError,
    NetworkError,
    NotCoordinatorError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    ProtocolError,
    RecordListTooLargeError,
    RequestTimedOutError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)

_APPEND_ERRORS: Final[Mapping[type[ProtocolError], type[ProtocolError]]] = {
    NetworkError: CoordinatorNotAvailableError,
    UnknownTopicOrPartitionError: CoordinatorNotAvailableError,
    NotEnoughReplicasError: CoordinatorNotAvailableError,
    NotEnoughReplicasAfterAppendError: CoordinatorNotAvailableError,
    RequestTimedOutError: CoordinatorNotAvailableError,
    NotLeaderOrFollowerError: NotCoordinatorError,
    KafkaStorageError: NotCoordinatorError,
    MessageTooLargeError: UnknownServerError,
    RecordListTooLargeError: UnknownServerError,
}
"""Errors for members by error of a failed append. With the first two, members send their heartbeat again."""


def member_error(error: ProtocolError) -> ProtocolError:
    """Return the error for a member whose append failed with `error`. Errors that are not in the table stay."""
    told = _APPEND_ERRORS.get(type(error))
    return error if told is None else told(str(error))
