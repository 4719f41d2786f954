"""Key sets: which keys are usable, and how a set stays fresh."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from odradek.security.sasl.http_client import OutboundRequest, OutboundResponse
from odradek.security.sasl.key_sets import (
    EXPEDITED_MS,
    MAX_KEYS,
    MAX_SET_BYTES,
    KeySetError,
    RefreshTimes,
    VerificationKeys,
    endpoint_loader,
    file_loader,
    parse_key_set,
)
from odradek_testkit.loop import VirtualClock, run_virtual
from odradek_testkit.security.certificates import rsa_key
from odradek_testkit.security.issuers import Issuer, key_set

T = TypeVar("T")

ISSUER = Issuer()
OTHER = Issuer(rsa_key(3072), key_id="key-2")
GOOD, BOTH = key_set(ISSUER.jwk()), key_set(ISSUER.jwk(), OTHER.jwk())
PRIVATE = dict.fromkeys(("d", "p", "q", "dp", "dq", "qi"), "AQAB")


@pytest.mark.parametrize(
    "entry",
    [
        ISSUER.jwk(use="enc"),
        ISSUER.jwk(key_ops=["encrypt"]),
        ISSUER.jwk(key_ops="verify"),
        ISSUER.jwk(alg="RSA-OAEP"),
        ISSUER.jwk(alg="ES256"),
        ISSUER.jwk(alg="HS256"),
        ISSUER.jwk(alg="none"),
        ISSUER.jwk(alg=7),
        ISSUER.jwk(kid=7),
        ISSUER.jwk(kty="RSA1"),
        ISSUER.jwk(kty=None),
        ISSUER.jwk(n=None),
        ISSUER.jwk(n=7),
        ISSUER.jwk(n=""),
        ISSUER.jwk(e="!"),
        Issuer(rsa.generate_private_key(65537, 1024)).jwk(),
        Issuer(ec.generate_private_key(ec.SECP256K1()), "ES256K").jwk(),
        Issuer(ec.generate_private_key(ec.SECP256R1()), "ES256").jwk(crv="P-384"),
        Issuer(ec.generate_private_key(ec.SECP256R1()), "ES256").jwk(x="AAAA"),
        {"kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0", "kid": "key-1"},
        {"kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0", "kid": "key-1", "alg": "RS256"},
        {"kty": "OKP", "crv": "X25519", "x": "AAAA"},
        "text",
        None,
    ],
)
def test_other_keys_are_ignored(entry: object) -> None:
    with pytest.raises(KeySetError, match="none of its 1 keys"):
        parse_key_set(json.dumps({"keys": [entry]}).encode())
    assert len(parse_key_set(json.dumps({"keys": [entry, OTHER.jwk()]}).encode())) == 1


def test_a_key_that_openssl_does_not_know_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    curve = Issuer(ec.generate_private_key(ec.SECP521R1()), "ES512", "key-2")
    data = key_set(ISSUER.jwk(), curve.jwk())
    assert len(parse_key_set(data)) == 2

    def refuse(*arguments: object) -> None:
        raise UnsupportedAlgorithm("the curve is not supported by this version of OpenSSL")

    monkeypatch.setattr(ec.EllipticCurvePublicNumbers, "public_key", refuse)
    assert len(parse_key_set(data)) == 1


def test_only_the_public_part_of_a_key_is_used() -> None:
    key = parse_key_set(key_set(ISSUER.jwk() | PRIVATE)).find("key-1", "RS256")
    assert key is not None
    assert not hasattr(key.public_key, "sign")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"keys": {}}',
        b"[" * 100_000,
        b'{"keys": [' + b"1," * MAX_KEYS + b"1]}",
        GOOD + b" " * MAX_SET_BYTES,
    ],
    ids=lambda data: data[:12],
)
def test_what_is_not_a_key_set(data: bytes) -> None:
    with pytest.raises(KeySetError):
        parse_key_set(data)


def test_a_key_without_algorithm_verifies_all_of_its_type() -> None:
    keys = parse_key_set(key_set(ISSUER.jwk(alg=None)))
    assert keys.find("key-1", "PS512") is not None
    assert keys.find("key-1", "ES256") is None


async def immediately(function: Callable[[], T]) -> T:
    return function()


class Place:
    """A place with a key set, and how often it was read."""

    def __init__(self, data: bytes | Exception = GOOD) -> None:
        self.data = data
        self.reads = 0

    def load(self) -> bytes:
        self.reads += 1
        if isinstance(self.data, Exception):
            raise self.data
        return self.data


TIMES = RefreshTimes(refresh_ms=100_000, backoff_ms=100, max_backoff_ms=1_000)


def kept(scenario: Callable[[Place, VerificationKeys, VirtualClock], Awaitable[None]], place: Place) -> None:
    """Run a scenario beside `keep_fresh`, in virtual time."""

    async def main() -> None:
        clock = VirtualClock()
        keys = VerificationKeys("https://issuer/keys", place.load, TIMES)
        task = asyncio.create_task(keys.keep_fresh(clock, immediately))
        await clock.sleep_ms(1)
        await scenario(place, keys, clock)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    run_virtual(main())


def test_a_set_is_loaded_again_after_its_time() -> None:
    async def scenario(place: Place, keys: VerificationKeys, clock: VirtualClock) -> None:
        assert (place.reads, len(keys)) == (1, 1)
        place.data = BOTH
        await clock.sleep_ms(99_000)
        assert (place.reads, len(keys)) == (1, 1)
        await clock.sleep_ms(2_000)
        assert (place.reads, len(keys)) == (2, 2)

    kept(scenario, Place())


def test_an_unknown_key_loads_the_set_again_but_not_often() -> None:
    async def scenario(place: Place, keys: VerificationKeys, clock: VirtualClock) -> None:
        place.data = BOTH
        assert keys.find("key-2", "RS256") is None
        await clock.sleep_ms(EXPEDITED_MS)
        assert place.reads == 2
        assert keys.find("key-2", "RS256") is not None
        for _ in range(50):
            assert keys.find("key-3", "RS256") is None
            await clock.sleep_ms(EXPEDITED_MS / 10)
        assert place.reads <= 8

    kept(scenario, Place())


@pytest.mark.parametrize("failure", [OSError(111, "refused"), KeySetError("status 500"), b"<html>"])
def test_a_failure_keeps_the_set_and_is_repeated(failure: bytes | Exception, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(place: Place, keys: VerificationKeys, clock: VirtualClock) -> None:
        place.data = failure
        keys.find("key-2", "RS256")
        await clock.sleep_ms(EXPEDITED_MS + 10_000)
        assert 10 <= place.reads <= 16
        assert keys.find("key-1", "RS256") is not None
        assert len(caplog.records) == 1
        place.data = BOTH
        await clock.sleep_ms(1_100)
        assert keys.find("key-2", "RS256") is not None

    kept(scenario, Place())


def test_a_broker_starts_without_keys() -> None:
    async def scenario(place: Place, keys: VerificationKeys, clock: VirtualClock) -> None:
        assert len(keys) == 0
        assert keys.find("key-1", "RS256") is None
        place.data = GOOD
        await clock.sleep_ms(200)
        assert keys.find("key-1", "RS256") is not None

    kept(scenario, Place(OSError(111, "refused")))


def test_a_file_may_be_replaced_and_may_be_missing(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    keys = VerificationKeys(f"file://{path}", file_loader(str(path)))
    with pytest.raises(KeySetError, match=r"cannot be read: No such file"):
        keys.refresh()
    path.write_bytes(GOOD)
    keys.refresh()
    replacement = tmp_path / "new.json"
    replacement.write_bytes(BOTH)
    replacement.rename(path)
    keys.refresh()
    assert len(keys) == 2
    path.write_bytes(GOOD * (MAX_SET_BYTES // len(GOOD) + 1))
    with pytest.raises(KeySetError, match="larger"):
        keys.refresh()
    assert len(keys) == 2


def test_an_address_must_answer_with_200() -> None:
    def http(request: OutboundRequest) -> OutboundResponse:
        assert request.body is None
        return OutboundResponse(200 if request.url.endswith("/keys") else 302, GOOD)

    assert endpoint_loader("https://issuer/keys", http)() == GOOD
    with pytest.raises(KeySetError, match="status 302"):
        endpoint_loader("https://issuer/moved", http)()
