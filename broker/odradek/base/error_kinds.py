"""The base classes of all errors.

A `ProtocolError` has a code, and its subclass says where the cause is: `PeerError` (the client sent something invalid
or outdated), `StateError` (the state of the cluster is changing: retry, possibly elsewhere), `OurError` (this broker or
its environment failed). `base/errors` has all of them with their codes.
"""

from __future__ import annotations

from typing import ClassVar, Final


class OdradekError(Exception):
    """Base of every error that this project raises. The message is for users."""


class ConfigError(OdradekError):
    """A setting is invalid. The message has the key, the value and what is allowed."""


class StorageError(OdradekError):
    """A disk operation failed; the directory that contains `path` may have to go offline."""

    def __init__(
        self, message: str, *, path: str = "", missing: bool = False, full: bool = False, held: bool = False
    ) -> None:
        """`missing`: the file does not exist. `full`: no space is left, but reads work. `held`: another process has the
        lock."""
        super().__init__(message)
        self.path: Final = path
        self.missing: Final = missing
        self.full: Final = full
        self.held: Final = held


class WorkerDiedError(OdradekError):
    """A worker process ended during a call; another one can repeat the call."""


MAX_MESSAGE: Final = 2_000
"""Maximum length of an error message. It may quote what a client sent, and a string in a response has 32767 bytes."""


class ProtocolError(OdradekError):
    """An error that is sent as a code in a response, usually with its message."""

    code: ClassVar[int] = -1
    retriable: ClassVar[bool] = False

    def __str__(self) -> str:
        """The message, truncated to `MAX_MESSAGE` characters."""
        text = super().__str__()
        return text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]}..."


class PeerError(ProtocolError):
    """The request is invalid, outdated or not allowed."""


class StateError(ProtocolError):
    """The state of the cluster does not allow it now; usually retriable after a metadata refresh."""


class OurError(ProtocolError):
    """This broker or its environment failed."""
