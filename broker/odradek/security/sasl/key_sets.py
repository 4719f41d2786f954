"""The public keys that bearer tokens are verified with: a JSON Web Key Set (RFC 7517) from a file or an address.

`VerificationKeys` answers from memory. `keep_fresh`, a task of its owner, loads the set at the start, then again after
`sasl.oauthbearer.jwks.endpoint.refresh.ms`, and soon after a token with an unknown key. A set that cannot be loaded is
logged once, and the old one stays. Only keys for signatures with asymmetric algorithms are used.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from odradek.base.errors import OdradekError
from odradek.base.ports import Clock, RunBlocking
from odradek.security.sasl.http_client import Http, OutboundRequest

logger: Final = logging.getLogger(__name__)

PublicKey = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey | Ed448PublicKey

RSA_ALGORITHMS: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
CURVE_ALGORITHMS: Final[Mapping[str, str]] = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
ALGORITHMS: Final = RSA_ALGORITHMS | set(CURVE_ALGORITHMS.values()) | {"EdDSA"}
"""All algorithms of signatures that are accepted (RFC 7518, RFC 8037)."""

MIN_RSA_BITS: Final = 2048
"""Minimum of RFC 7518, section 3.3."""

MAX_SET_BYTES: Final = 1 << 20
MAX_KEYS: Final = 1000

EXPEDITED_MS: Final = 10_000
"""Minimum time between two loads because of unknown keys, which any client can cause."""

FILE_REFRESH_MS: Final = 10_000
"""Time between two reads of a file. Kafka reads it only at the start."""

_PRIVATE: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})


class KeySetError(OdradekError):
    """A key set cannot be loaded. The message names the place and the reason."""


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A key of the set."""

    key_id: str | None
    algorithms: frozenset[str]
    """Names of the algorithms that it may verify: that of the set, or all of its type."""
    public_key: PublicKey = field(repr=False)


class KeySet:
    """The usable keys of a set."""

    __slots__ = ("_keys",)

    def __init__(self, keys: Iterable[VerificationKey] = ()) -> None:
        self._keys: Final = tuple(keys)

    def __len__(self) -> int:
        """Number of keys."""
        return len(self._keys)

    def find(self, key_id: str | None, algorithm: str) -> VerificationKey | None:
        """Return the key with this id, or without id the only one for the algorithm. None: there is no such key."""
        fitting = [key for key in self._keys if algorithm in key.algorithms]
        if key_id is not None:
            return next((key for key in fitting if key.key_id == key_id), None)
        return fitting[0] if len(fitting) == 1 else None


def parse_key_set(data: bytes) -> KeySet:
    """Return the usable keys of a set in JSON. Raises `KeySetError` if it is not one, or has no usable key."""
    if len(data) > MAX_SET_BYTES:
        raise KeySetError(f"it is larger than {MAX_SET_BYTES} bytes")
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        raise KeySetError("it is not JSON") from None
    entries = content.get("keys") if isinstance(content, dict) else None
    if not isinstance(entries, list) or len(entries) > MAX_KEYS:
        raise KeySetError(f"it is not a JSON Web Key Set of at most {MAX_KEYS} keys")
    keys = [key for entry in entries if isinstance(entry, dict) and (key := _usable(entry)) is not None]
    if not keys:
        raise KeySetError(
            f"none of its {len(entries)} keys is for signatures with RSA of {MIN_RSA_BITS} bits or more, P-256, P-384, "
            "P-521, Ed25519 or Ed448"
        )
    return KeySet(keys)


def _usable(entry: Mapping[str, Any]) -> VerificationKey | None:
    """Return a key, or None if it is not for signatures, symmetric, too short or not valid."""
    key_id, algorithm, operations = entry.get("kid"), entry.get("alg"), entry.get("key_ops")
    if entry.get("use", "sig") != "sig" or not isinstance(key_id, str | None):
        return None
    if algorithm is not None and not (isinstance(algorithm, str) and algorithm in ALGORITHMS):
        return None
    if operations is not None and not (isinstance(operations, list) and "verify" in operations):
        return None
    try:
        key = PyJWK({name: value for name, value in entry.items() if name not in _PRIVATE}).key
    except (PyJWTError, UnsupportedAlgorithm, ValueError, TypeError, KeyError, AttributeError):
        # PyJWT checks the types of some members only, and OpenSSL may be built without a curve. The errors may show
        # the key, so they are not logged.
        return None
    allowed = _algorithms(key)
    if algorithm is not None:
        allowed &= {algorithm}
    return VerificationKey(key_id, allowed, key) if allowed else None


def _algorithms(key: object) -> frozenset[str]:
    if isinstance(key, RSAPublicKey):
        return RSA_ALGORITHMS if key.key_size >= MIN_RSA_BITS else frozenset()
    if isinstance(key, EllipticCurvePublicKey):
        return frozenset({CURVE_ALGORITHMS[key.curve.name]} if key.curve.name in CURVE_ALGORITHMS else ())
    return frozenset({"EdDSA"} if isinstance(key, Ed25519PublicKey | Ed448PublicKey) else ())


Load = Callable[[], bytes]
"""Gives the key set as JSON. Blocks. Raises `KeySetError` or `OSError`."""


def file_loader(path: str) -> Load:
    """Return what reads a file. It need not exist yet, and may be replaced, as Kubernetes does with volumes."""

    def load() -> bytes:
        with Path(path).open("rb") as file:
            return file.read(MAX_SET_BYTES + 1)

    return load


def endpoint_loader(url: str, http: Http) -> Load:
    """Return what gets `url`."""

    def load() -> bytes:
        response = http(OutboundRequest(url))
        if response.status != 200:
            raise KeySetError(f"the response has the status {response.status}, not 200")
        return response.body

    return load


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshTimes:
    """How often keys are loaded, in milliseconds. The defaults are Kafka's."""

    refresh_ms: int = 3_600_000
    backoff_ms: int = 100
    """Wait after the first failure; each further one doubles it."""
    max_backoff_ms: int = 10_000


class VerificationKeys:
    """The current key set."""

    def __init__(self, place: str, load: Load, times: RefreshTimes = RefreshTimes()) -> None:
        """`place` is the value of the setting, for errors and logs."""
        self.place: Final = place
        self._load: Final = load
        self._times: Final = times
        self._keys = KeySet()
        self._data: bytes | None = None
        self._is_wanted = asyncio.Event()
        self._failure: str | None = None

    def __len__(self) -> int:
        """Number of usable keys; 0 before they are loaded."""
        return len(self._keys)

    def find(self, key_id: str | None, algorithm: str) -> VerificationKey | None:
        """Return a key, or None; then the set is loaded again soon. Call it on the event loop."""
        key = self._keys.find(key_id, algorithm)
        if key is None:
            self._is_wanted.set()
        return key

    def refresh(self) -> None:
        """Load the set. Blocks: call it in a thread. Raises `KeySetError`, and keeps the old set."""
        try:
            data = self._load()
            if data != self._data:
                self._keys = parse_key_set(data)
                self._data = data
        except OSError as error:
            raise KeySetError(f"the key set {self.place} cannot be read: {error.strerror or error}") from error
        except KeySetError as error:
            raise KeySetError(f"the key set {self.place} cannot be used: {error}") from error

    async def keep_fresh(self, clock: Clock, run_blocking: RunBlocking) -> None:
        """Load the set now and then again for ever, with `run_blocking`. Returns when it is cancelled."""
        failures = 0
        while True:
            self._is_wanted.clear()
            try:
                await run_blocking(self.refresh)
            except KeySetError as error:
                self._log_failure(str(error))
                # The exponent has a bound, so that the number does not grow with the failures.
                await clock.sleep_ms(min(self._times.backoff_ms << min(failures, 20), self._times.max_backoff_ms))
                failures += 1
                continue
            failures = 0
            self._log_success()
            timer = clock.call_later(self._times.refresh_ms, self._is_wanted.set)
            try:
                await clock.sleep_ms(min(EXPEDITED_MS, self._times.refresh_ms))
                await self._is_wanted.wait()
            finally:
                timer.cancel()

    def _log_failure(self, text: str) -> None:
        if text != self._failure:
            logger.warning("%s; %d keys are in use", text, len(self._keys))
        self._failure = text

    def _log_success(self) -> None:
        if self._failure is not None:
            logger.info("the key set %s is loaded again, with %d keys", self.place, len(self._keys))
        self._failure = None
