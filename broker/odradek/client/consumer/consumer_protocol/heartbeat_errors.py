"""What the errors of ConsumerGroupHeartbeat mean to a member, and messages that say what to do (KIP-848).

`ConsumerProtocolMember` uses it. The meanings are those of the Java client of Apache Kafka 4.1, where an error that a
retry cannot remove ends the membership.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final

from odradek.base.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupAuthorizationFailedError,
    GroupMaxSizeReachedError,
    InvalidRegularExpressionError,
    InvalidRequestError,
    NotCoordinatorError,
    ProtocolError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
    UnsupportedVersionError,
)
from odradek.client.consumer.consumer_protocol.heartbeat_fields import HeartbeatFields


class Reaction(Enum):
    """What a member does after an error of a heartbeat."""

    FIND_COORDINATOR = "find the coordinator and repeat the heartbeat"
    REPEAT = "repeat the heartbeat after a pause"
    REPORT = "raise the error, and repeat the heartbeat after a pause"
    JOIN_AGAIN = "drop the assignment and join again with epoch 0"
    STOP = "drop the assignment and raise the error"


_MOVED: Final = (NotCoordinatorError, CoordinatorNotAvailableError, CoordinatorLoadInProgressError)
_LOST: Final = (FencedMemberEpochError, UnknownMemberIdError)


def reaction_to(error: ProtocolError) -> Reaction:
    """Return what a member does after an error of a heartbeat."""
    if isinstance(error, _MOVED):
        return Reaction.FIND_COORDINATOR
    if isinstance(error, _LOST):
        return Reaction.JOIN_AGAIN
    if isinstance(error, TopicAuthorizationFailedError):
        return Reaction.REPORT
    return Reaction.REPEAT if error.retriable else Reaction.STOP


def explained(error: ProtocolError, group_id: str, instance_id: str | None, fields: HeartbeatFields) -> ProtocolError:
    """Return an error of the same class whose message says what to do. Other errors are returned as they are."""
    describe = _ADVICE.get(type(error))
    if describe is None:
        return error
    found = type(error)(f"{describe(group_id, instance_id, fields)} The answer was: {error}")
    found.__cause__ = error
    return found


def _unsupported_version(group_id: str, instance_id: str | None, fields: HeartbeatFields) -> str:
    if fields.regex is not None:
        return (
            "The broker cannot resolve the regular expression of a subscription, or does not support "
            "group.protocol=consumer. Subscribe with names or re.compile(...), or upgrade the broker."
        )
    return (
        "The broker does not support group.protocol=consumer. Set group.protocol=classic, or upgrade the broker: Apache"
        " Kafka supports it since version 4.0."
    )


_ADVICE: Final[Mapping[type[ProtocolError], Callable[[str, str | None, HeartbeatFields], str]]] = {
    UnreleasedInstanceIdError: lambda group_id, instance_id, fields: (
        f"Another member of group {group_id} has group.instance.id={instance_id}. Close it, wait until its session"
        " has expired, or set another id."
    ),
    FencedInstanceIdError: lambda group_id, instance_id, fields: (
        f"Another member of group {group_id} has taken over group.instance.id={instance_id}. Set a different id for"
        " each consumer."
    ),
    InvalidRegularExpressionError: lambda group_id, instance_id, fields: (
        f"The regular expression {fields.regex!r} is not valid. It must have the syntax of RE2."
    ),
    UnsupportedAssignorError: lambda group_id, instance_id, fields: (
        f"group.remote.assignor={fields.server_assignor} is not supported by the broker. Set one of the broker's"
        " group.consumer.assignors, or none."
    ),
    GroupMaxSizeReachedError: lambda group_id, instance_id, fields: (
        f"Group {group_id} has reached its maximum size. Close another consumer, or increase group.consumer.max.size"
        " of the brokers."
    ),
    GroupAuthorizationFailedError: lambda group_id, instance_id, fields: (
        f"This client is not authorized for group {group_id}. It needs the operation Read on the group."
    ),
    TopicAuthorizationFailedError: lambda group_id, instance_id, fields: (
        "This client is not authorized for a subscribed topic. It needs the operation Describe on every topic that it"
        f" names: {', '.join(fields.topics)}."
    ),
    InvalidRequestError: lambda group_id, instance_id, fields: (
        f"The broker refuses the heartbeat of a member of group {group_id} as invalid."
    ),
    UnsupportedVersionError: _unsupported_version,
}
