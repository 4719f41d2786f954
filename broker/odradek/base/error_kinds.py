"""The kinds of errors, from which all others descend.

`ProtocolError` has a code and says by its branch who is to blame: `PeerError` (the client sent something wrong or old),
`StateError` (nobody: the cluster is moving, try again or elsewhere), `OurError` (this broker or its surroundings
failed). `base/errors` has them all, each with its code.
"""

from __future__ import annotations

from typing import ClassVar, Final


class OdradekError(Exception):
    """Base of every error that this project raises on purpose. The text is one sentence for a person."""


class ConfigError(OdradekError):
    """A setting is wrong: names the key, the value and what is allowed."""


class StorageError(OdradekError):
    """A disk operation failed; the directory that holds `path` may have to go offline."""

    def __init__(
        self, message: str, *, path: str = "", missing: bool = False, full: bool = False, held: bool = False
    ) -> None:
        """`missing`: no such file. `full`: no space is left, reads still work. `held`: someone else has the lock."""
        super().__init__(message)
        self.path: Final = path
        self.missing: Final = missing
        self.full: Final = full
        self.held: Final = held


class WorkerDiedError(OdradekError):
    """A worker process ended while it worked; the work may be given to another one."""


MAX_MESSAGE: Final = 2_000
"""Characters of an error's message. It may quote what a client sent, and a string of a response has 32767 bytes."""


class ProtocolError(OdradekError):
    """An error that travels as a code in a response, mostly with its message."""

    code: ClassVar[int] = -1
    retriable: ClassVar[bool] = False

    def __str__(self) -> str:
        """The message, cut off after `MAX_MESSAGE` characters."""
        text = super().__str__()
        return text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]}..."


class PeerError(ProtocolError):
    """The peer's request is wrong, stale or not allowed."""


class StateError(ProtocolError):
    """The cluster's state does not allow it now; mostly retriable after a metadata refresh."""


class OurError(ProtocolError):
    """This broker or what it stands on failed."""
