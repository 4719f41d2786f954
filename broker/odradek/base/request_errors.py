"""Errors of requests as such, whatever they ask for. All are found in `base/errors`, too."""

from __future__ import annotations

from odradek.base.error_kinds import OurError, PeerError, StateError


class UnknownServerError(OurError):
    """Anything without a better name."""

    code = -1


class RequestTimedOutError(StateError):
    """The request's own time limit passed first."""

    code = 7
    retriable = True


class NetworkError(StateError):
    """A connection ended before its response came. Never sent; raised by clients."""

    code = 13
    retriable = True


class UnsupportedVersionError(PeerError):
    """The API or its version is not served here."""

    code = 35


class InvalidRequestError(PeerError):
    """The request contradicts itself or the protocol."""

    code = 42


class MalformedFrameError(PeerError):
    """A frame lies about its lengths or is cut short. The connection that sent it is closed."""

    code = 42
