"""SaslHandshake and SaslAuthenticate of clients that have an identity. They go to the login, if there is one."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.base.errors import IllegalSaslStateError
from odradek.network.connection import Request
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message, encode_response
from odradek.server.dispatch import DirectHandler


def sasl_handlers() -> Mapping[ApiKey, DirectHandler]:
    """The handlers by API."""
    return {ApiKey.SASL_HANDSHAKE: _pass_on, ApiKey.SASL_AUTHENTICATE: _pass_on}


def _pass_on(request: Request) -> None:
    login = request.connection.login
    if login is None:
        refuse_login(request)
    else:
        login(request)


def refuse_login(request: Request) -> None:
    """Answer ILLEGAL_SASL_STATE, as Kafka does. The connection stays open."""
    error = IllegalSaslStateError.code
    if request.api_key == ApiKey.SASL_HANDSHAKE:
        respond(request, {"error_code": error, "mechanisms": ()})
    else:
        text = "The request is not allowed now: no authentication with SASL has begun."
        respond(request, {"error_code": error, "error_message": text, "auth_bytes": b"", "session_lifetime_ms": 0})


def respond(request: Request, message: Message) -> None:
    """Send the response to a request."""
    request.respond([encode_response(request.api_key, request.api_version, request.correlation_id, message)])
