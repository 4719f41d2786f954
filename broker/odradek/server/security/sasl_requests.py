"""SaslHandshake and SaslAuthenticate of connections that do not authenticate with SASL."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.base.errors import IllegalSaslStateError
from odradek.network.connection import Request
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message, encode_response
from odradek.server.dispatch import DirectHandler


def sasl_handlers() -> Mapping[ApiKey, DirectHandler]:
    """The handlers by API."""
    return {ApiKey.SASL_HANDSHAKE: refuse_login, ApiKey.SASL_AUTHENTICATE: refuse_login}


def refuse_login(request: Request) -> None:
    """Answer ILLEGAL_SASL_STATE, as Kafka does: the connection needs no authentication. It stays open."""
    error = IllegalSaslStateError.code
    if request.api_key == ApiKey.SASL_HANDSHAKE:
        respond(request, {"error_code": error, "mechanisms": ()})
    else:
        text = "The connection does not authenticate with SASL, or has done so before."
        respond(request, {"error_code": error, "error_message": text, "auth_bytes": b"", "session_lifetime_ms": 0})


def respond(request: Request, message: Message) -> None:
    """Send the response to a request."""
    request.respond([encode_response(request.api_key, request.api_version, request.correlation_id, message)])
