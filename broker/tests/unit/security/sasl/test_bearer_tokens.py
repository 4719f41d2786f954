"""Verification of signed tokens."""

from __future__ import annotations

import time
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from odradek.base.errors import ConfigError
from odradek.security.sasl.bearer_tokens import (
    ALGORITHMS,
    LOGIN_HANDLER,
    MAX_HEADER,
    MAX_TOKEN,
    BearerSettings,
    TokenVerifier,
    verification_keys,
)
from odradek.security.sasl.http_client import HttpClient
from odradek.security.sasl.key_sets import VerificationKeys
from odradek.security.sasl.oauthbearer import BearerToken, TokenError
from odradek_testkit.security.certificates import rsa_key
from odradek_testkit.security.issuers import DAY_S, Issuer, claims, key_set, unsigned_token

ISSUER = Issuer()
CURVES: dict[str, ec.EllipticCurve] = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}


def issuer_for(algorithm: str) -> Issuer:
    if algorithm == "EdDSA":
        return Issuer(ed25519.Ed25519PrivateKey.generate(), algorithm)
    if algorithm in CURVES:
        return Issuer(ec.generate_private_key(CURVES[algorithm]), algorithm)
    return Issuer(rsa_key(), algorithm)


def verifier(*keys: dict[str, object], **settings: object) -> TokenVerifier:
    known = VerificationKeys("file:///keys", lambda: key_set(*(keys or (ISSUER.jwk(),))))
    known.refresh()
    properties = {f"sasl.oauthbearer.{name.replace('_', '.')}": str(value) for name, value in settings.items()}
    properties["sasl.oauthbearer.jwks.endpoint.url"] = "file:///keys"
    return TokenVerifier(BearerSettings.from_properties(properties), known)


def refusal(verify: TokenVerifier, token: str) -> str:
    with pytest.raises(TokenError) as caught:
        verify(token)
    assert caught.value.status == "invalid_token"
    return str(caught.value)


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_each_algorithm_is_verified(algorithm: str) -> None:
    issuer = issuer_for(algorithm)
    expiry = int(time.time()) + 77
    expected = BearerToken(principal_name="alice", expiry_ms=expiry * 1000)
    for jwk in (issuer.jwk(), issuer.jwk(alg=None), issuer.jwk(use=None, key_ops=["verify"])):
        assert verifier(jwk)(issuer.token(exp=expiry)) == expected


def test_claims_have_other_names() -> None:
    verify = verifier(sub_claim_name="azp", scope_claim_name="scp")
    token = verify(ISSUER.token(sub=None, azp=" service ", scp=["read", " write "], scope=1))
    assert (token.principal_name, token.scopes) == ("service", {"read", "write"})


@pytest.mark.parametrize(
    ("scope", "scopes"), [(None, set()), ("", set()), ("read  write", {"read", "write"}), (["a"], {"a"}), ([], set())]
)
def test_scopes(scope: object, scopes: set[str]) -> None:
    assert verifier()(ISSUER.token(scope=scope)).scopes == scopes


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        ("", "not valid"),
        ("a.b", "not valid"),
        ("a.b.c", "not valid"),
        ("x" * (MAX_TOKEN + 1), "longer than"),
        (ISSUER.token() + "\ud800", "not ASCII"),
        (ISSUER.token(headers={"x5c": ["x" * MAX_HEADER]}), "the header of the token is longer"),
        (ISSUER.token()[:-8], "not valid"),
        (ISSUER.token().replace(".", ".e30", 1), "not valid"),
        (ISSUER.token(exp=None), "'Token is missing the \"exp\" claim'"),
        (ISSUER.token(iat=None), "'Token is missing the \"iat\" claim'"),
        (ISSUER.token(exp=int(time.time()) - 60), "expired"),
        (ISSUER.token(iat=int(time.time()) + DAY_S), "not yet valid"),
        (ISSUER.token(nbf=int(time.time()) + DAY_S), "not yet valid"),
        (ISSUER.token(exp=str(int(time.time()) + DAY_S)), "claim exp"),
        (ISSUER.token(exp=10**15), "claim exp"),
        (ISSUER.token(exp=1e300), "claim exp"),
        (ISSUER.token(sub=None), "claim sub"),
        (ISSUER.token(sub=" "), "claim sub"),
        (ISSUER.token(sub="x\ud800"), "claim sub"),
        (ISSUER.token(sub=7), "not valid"),
        (ISSUER.token(scope=7), "claim scope"),
        (ISSUER.token(scope=["a", 7]), "claim scope"),
        (ISSUER.token(aud="kafka"), "sasl.oauthbearer.expected.audience: no audience"),
        (ISSUER.token(headers={"kid": "key-2"}), "no key 'key-2' for RS256"),
        (unsigned_token({"alg": "RS256", "kid": 7}), "not valid"),
        (ISSUER.token(headers={"crit": ["exp"]}), "not valid"),
        (Issuer(ec.generate_private_key(ec.SECP256R1()), "ES256").token(), "no key 'key-1' for ES256"),
        (Issuer(rsa_key(), "PS256").token(), "no key 'key-1' for PS256"),
    ],
)
def test_refused_tokens(token: str, reason: str) -> None:
    assert reason in refusal(verifier(), token)


def test_another_key_with_the_same_name_is_refused() -> None:
    other = Issuer(rsa_key(3072))
    assert "not valid" in refusal(verifier(), other.token())


def test_a_token_without_signature_is_refused_with_the_remedy() -> None:
    for algorithm in ("none", "None", "NONE"):
        text = refusal(verifier(), unsigned_token({"alg": algorithm}))
        assert "sasl.oauthbearer.token.endpoint.url" in text
        assert LOGIN_HANDLER in text


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_a_token_signed_with_the_public_key_as_a_secret_is_refused(algorithm: str) -> None:
    """Algorithm confusion: everybody knows the public key."""
    public = ISSUER.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    token = unsigned_token({"alg": algorithm, "kid": "key-1"})
    signed = token.encode().rstrip(b".")
    prepared = jwt.get_algorithm_by_name(algorithm).sign(signed, public)
    forged = unsigned_token({"alg": algorithm, "kid": "key-1"}, prepared)
    assert "is not accepted" in refusal(verifier(), forged)
    symmetric: dict[str, object] = {"kty": "oct", "k": "c2VjcmV0", "kid": "key-1", "alg": algorithm}
    assert "is not accepted" in refusal(verifier(symmetric, ISSUER.jwk()), forged)


@pytest.mark.parametrize("header", [{}, {"alg": 1}, {"alg": ["RS256"]}, {"alg": "ES256K"}, {"alg": "rs256"}])
def test_other_algorithms_are_refused(header: dict[str, object]) -> None:
    assert "is not accepted" in refusal(verifier(), unsigned_token({"typ": "JWT"} | header, b"x"))


def test_clock_skew_applies_to_all_times() -> None:
    now = int(time.time())
    late, early = ISSUER.token(exp=now - 20), ISSUER.token(iat=now + 20, nbf=now + 20)
    assert verifier()(late).expiry_ms == (now - 20) * 1000
    assert verifier()(early).principal_name == "alice"
    assert "expired" in refusal(verifier(clock_skew_seconds=0), late)
    assert "not yet valid" in refusal(verifier(clock_skew_seconds=0), early)


def test_one_audience_must_match() -> None:
    verify = verifier(expected_audience="kafka, other")
    for audience in ("kafka", ["x", "other"]):
        assert verify(ISSUER.token(aud=audience)).principal_name == "alice"
    for audience in ("kafk", ["x"], 7):
        assert "expected.audience: kafka, other" in refusal(verify, ISSUER.token(aud=audience))
    assert "aud" in refusal(verify, ISSUER.token())


def test_the_issuer_must_match() -> None:
    verify = verifier(expected_issuer="https://issuer")
    assert verify(ISSUER.token(iss="https://issuer")).principal_name == "alice"
    assert "expected.issuer: https://issuer" in refusal(verify, ISSUER.token(iss="https://issuer/"))
    assert "iss" in refusal(verify, ISSUER.token())


def test_a_token_without_key_id_needs_a_single_key() -> None:
    anonymous = Issuer(key_id=None)
    assert verifier()(anonymous.token()).principal_name == "alice"
    two = verifier(ISSUER.jwk(), Issuer(rsa_key(3072), key_id="key-2").jwk())
    assert "names no key" in refusal(two, anonymous.token())


def test_keys_that_are_not_loaded() -> None:
    keys = VerificationKeys("https://issuer/keys", lambda: b"")
    verify = TokenVerifier(BearerSettings(jwks_url="https://issuer/keys"), keys)
    assert refusal(verify, ISSUER.token()) == "the key set https://issuer/keys is not loaded"


def test_errors_have_no_signature() -> None:
    token = ISSUER.token(aud="x")
    assert token.split(".")[2] not in refusal(verifier(), token)


def test_settings_have_kafka_s_names_and_defaults(tmp_path: Path) -> None:
    path = tmp_path / "keys with space%20.json"
    path.write_bytes(key_set(ISSUER.jwk()))
    settings = BearerSettings.from_properties({"sasl.oauthbearer.jwks.endpoint.url": f" file://{path} "})
    assert (settings.clock_skew_s, settings.scope_claim, settings.sub_claim) == (30, "scope", "sub")
    assert (settings.times.refresh_ms, settings.times.backoff_ms, settings.times.max_backoff_ms) == (
        3600000,
        100,
        10000,
    )
    keys = verification_keys(settings, HttpClient())
    keys.refresh()
    assert TokenVerifier(settings, keys)(ISSUER.token()).principal_name == "alice"


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("jwks.endpoint.url", "", "is missing"),
        ("jwks.endpoint.url", "ftp://issuer/keys", "begins with http:, https:, file:"),
        ("jwks.endpoint.url", "https:///keys", "with a host"),
        ("jwks.endpoint.url", "https://issuer:geheim/keys", "not a valid URL"),
        ("jwks.endpoint.url", "https://user:geheim@issuer/keys", "without user and password"),
        ("jwks.endpoint.url", "https://issuer/ä", "only ASCII"),
        ("jwks.endpoint.url", "https://issuer/a b", "without spaces"),
        ("jwks.endpoint.url", "file://host/keys", "absolute path"),
        ("jwks.endpoint.url", "file:keys", "absolute path"),
        ("jwks.endpoint.refresh.ms", "0", "at least 1"),
        ("clock.skew.seconds", "-1", "at least 0"),
        ("clock.skew.seconds", "\u0661", "at least 0"),
        ("jwks.endpoint.retry.backoff.ms", "soon", "at least 1"),
    ],
)
def test_bad_settings(name: str, value: str, reason: str) -> None:
    properties = {"sasl.oauthbearer.jwks.endpoint.url": "file:///keys", f"sasl.oauthbearer.{name}": value}
    with pytest.raises(ConfigError) as caught:
        BearerSettings.from_properties(properties)
    assert reason in str(caught.value)
    assert str(caught.value).startswith(f"sasl.oauthbearer.{name}")
    assert "geheim" not in str(caught.value)


def test_claims_of_the_test_kit_are_those_of_a_valid_token() -> None:
    assert set(claims()) == {"sub", "iat", "exp"}
