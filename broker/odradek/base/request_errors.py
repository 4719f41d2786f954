"""Errors that any request can have. `base/errors` exports all of them."""

from __future__ import annotations

from odradek.base.error_kinds import OurError, PeerError, StateError


class UnknownServerError(OurError):
    """Any error without a code."""

    code = -1


class RequestTimedOutError(StateError):
    """The timeout of the request expired."""

    code = 7
    retriable = True


class NetworkError(StateError):
    """A connection ended before its response arrived. Raised by clients, never sent."""

    code = 13
    retriable = True


class UnsupportedSaslMechanismError(PeerError):
    """The listener does not have the SASL mechanism."""

    code = 33


class IllegalSaslStateError(PeerError):
    """The request is not allowed at this point of the authentication."""

    code = 34


class UnsupportedVersionError(PeerError):
    """The API or its version is not supported."""

    code = 35


class InvalidRequestError(PeerError):
    """The request violates the protocol or is inconsistent."""

    code = 42


class SaslAuthenticationFailedError(PeerError):
    """The client did not authenticate. The broker closes the connection."""

    code = 58


class DelegationTokenAuthDisabledError(PeerError):
    """The brokers have no secret for delegation tokens (KIP-48)."""

    code = 61


class DelegationTokenNotFoundError(PeerError):
    """There is no delegation token with this HMAC."""

    code = 62


class DelegationTokenOwnerMismatchError(PeerError):
    """The client is neither the owner nor a renewer of the delegation token."""

    code = 63


class DelegationTokenRequestNotAllowedError(PeerError):
    """Delegation tokens cannot be managed on connections without authentication or with a delegation token."""

    code = 64


class DelegationTokenAuthorizationFailedError(PeerError):
    """The client has no right to this delegation token."""

    code = 65


class DelegationTokenExpiredError(PeerError):
    """The delegation token has expired."""

    code = 66


class InvalidPrincipalTypeError(PeerError):
    """The type of the principal is not supported: only User is."""

    code = 67


class AuthenticationError(PeerError):
    """A client and a broker do not accept each other, by SASL or TLS. Raised by clients, never sent. A retry is of no
    use until credentials, certificates or settings are changed."""

    code = 58


class ThrottlingQuotaExceededError(StateError):
    """The client has created or deleted too many partitions in a short time (KIP-599)."""

    code = 89
    retriable = True


class MalformedFrameError(PeerError):
    """A frame has invalid lengths or is truncated. The connection that sent it is closed."""

    code = 42
