"""Issuers of JSON Web Tokens for tests: their keys, key sets and tokens."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import get_default_algorithms

from odradek_testkit.security.certificates import rsa_key

DAY_S = 86_400
"""Tokens are made when tests are collected, and must be valid, or not yet valid, when the last one runs."""

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


@dataclass(frozen=True)
class Issuer:
    """One key of an issuer."""

    key: PrivateKey = field(default_factory=rsa_key)
    algorithm: str = "RS256"
    key_id: str | None = "key-1"

    def jwk(self, **changes: object) -> dict[str, object]:
        """Return the public key for a key set. A change to None removes a member."""
        made = json.loads(get_default_algorithms()[self.algorithm].to_jwk(self.key.public_key()))
        made.pop("key_ops", None)
        made |= {"use": "sig", "alg": self.algorithm, "kid": self.key_id} | changes
        return {name: value for name, value in made.items() if value is not None}

    def token(self, *, headers: Mapping[str, Any] | None = None, **changes: object) -> str:
        """Return a signed token for `alice` that is valid for a day. A change to None removes a claim."""
        named = {} if self.key_id is None else {"kid": self.key_id}
        return jwt.encode(claims(**changes), self.key, self.algorithm, headers={**named, **(headers or {})})


def claims(**changes: object) -> dict[str, object]:
    """Return the claims of a valid token. A change to None removes a claim."""
    now = int(time.time())
    made = {"sub": "alice", "iat": now - 5, "exp": now + DAY_S} | changes
    return {name: value for name, value in made.items() if value is not None}


def key_set(*keys: Mapping[str, object]) -> bytes:
    """Return a key set in JSON."""
    return json.dumps({"keys": keys}).encode()


def unsigned_token(header: Mapping[str, object] | None = None, signature: bytes = b"", **changes: object) -> str:
    """Return a token with any header and signature: by default the one that Kafka's default handler makes."""
    parts = (json.dumps(header or {"alg": "none"}).encode(), json.dumps(claims(**changes)).encode(), signature)
    return ".".join(urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)
