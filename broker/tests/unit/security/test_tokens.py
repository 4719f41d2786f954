"""Delegation tokens: HMACs and znodes as Kafka 3.9.1 writes them, lifetimes, and who may use them."""

from __future__ import annotations

import json
from base64 import b64decode

import pytest

from odradek.security.principals import Principal
from odradek.security.tokens import (
    DelegationToken,
    TokenKey,
    TokenLimits,
    decode_token,
    decode_token_change,
    encode_token,
    encode_token_change,
    token_path,
)
from odradek.znode import LayoutError

TOKEN_ID = "yyXdJ6yrS4-3D2nqzFKVHg"
PATH = f"/delegation_token/tokens/{TOKEN_ID}"
CHANGE = "/delegation_token/token_changes/token_change_0000000000"
OWNER, BOB, CAROL = Principal("User", "CN=a, O=*~+"), Principal("User", "bob"), Principal("User", "ä b")
LIMITS = TokenLimits(max_lifetime_ms=1000, expiry_time_ms=100)

# Written by Kafka 3.9.1 (`DelegationTokenInfoZNode.encode`).
KAFKAS = (
    b'{"issueTimestamp":1700000000000,"renewers":["User%3Abob","User%3A%C3%A4%20b"],"tokenRequester":"User%3Abob",'
    b'"tokenId":"yyXdJ6yrS4-3D2nqzFKVHg","owner":"User%3ACN%3Da%2C%20O%3D%2A%7E%2B","expiryTimestamp":1700086400000,'
    b'"maxTimestamp":1700604800000,"version":3}'
)
TOKEN = DelegationToken(
    token_id=TOKEN_ID,
    owner=OWNER,
    requester=BOB,
    renewers=(BOB, CAROL),
    issue_ms=1700000000000,
    max_ms=1700604800000,
    expiry_ms=1700086400000,
)
OWN = DelegationToken(token_id=TOKEN_ID, owner=OWNER, requester=OWNER, issue_ms=1, max_ms=3, expiry_ms=2)
KAFKAS_OWN = json.dumps(
    {
        "version": 1,
        "owner": "User%3ACN%3Da%2C%20O%3D%2A%7E%2B",
        "renewers": [],
        "issueTimestamp": 1,
        "maxTimestamp": 3,
        "expiryTimestamp": 2,
        "tokenId": TOKEN_ID,
    }
).encode()


def issued(lifetime_ms: int, limits: TokenLimits = LIMITS) -> DelegationToken:
    return DelegationToken.issue("id", OWNER, BOB, [CAROL], lifetime_ms=lifetime_ms, limits=limits, now_ms=50)


def test_the_hmac_is_kafkas() -> None:
    # `DelegationTokenManager.createHmac` of Kafka 3.9.1.
    expected = "sIj9sZE8icO+vj2AkWLFTITxA6oC+WbatwXBslmXjUwc5vUDTKROOZ/LQaqySyCkB8R7Bd7hqpRxpJDHbaLWHg=="
    assert TokenKey("a secret ä").hmac(TOKEN_ID) == b64decode(expected)


def test_a_key_hides_its_secret_and_has_one() -> None:
    assert "hidden" not in repr(TokenKey("hidden"))
    with pytest.raises(ValueError, match="is empty"):
        TokenKey("")


def test_a_token_of_kafka_is_read() -> None:
    assert decode_token(PATH, KAFKAS) == TOKEN
    assert decode_token(PATH, KAFKAS_OWN) == OWN


def test_a_token_is_written_as_by_kafka_with_the_lowest_version_that_has_all_of_it() -> None:
    assert json.loads(encode_token(TOKEN)) == json.loads(KAFKAS)
    assert json.loads(encode_token(OWN)) == json.loads(KAFKAS_OWN)


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        (b'"version":3', b'"version":4', "version must be from 1 to 3"),
        (b'"version":3', b'"version":0', "version must be from 1 to 3"),
        (b'"tokenId":"yy', b'"tokenId":"zz', "tokenId must be the name of the znode"),
        (b'"User%3Abob","User', b'"bob","User', "'bob' is not a principal"),
        (b'"expiryTimestamp":1700086400000', b'"expiryTimestamp":null', "expiryTimestamp must be a number"),
        (b'"tokenRequester"', b'"requester"', "tokenRequester must be a string"),
        (b"}", b"", "not JSON"),
    ],
)
def test_invalid_content_is_refused(before: bytes, after: bytes, problem: str) -> None:
    assert before in KAFKAS
    with pytest.raises(LayoutError, match=f"^{PATH}: {problem}"):
        decode_token(PATH, KAFKAS.replace(before, after))


@pytest.mark.parametrize("lifetime_ms", [0, -1, 1000, 5000, 2**63 - 1])
def test_a_token_expires_after_the_expiry_time_and_lives_for_the_maximum(lifetime_ms: int) -> None:
    token = issued(lifetime_ms)
    assert (token.issue_ms, token.expiry_ms, token.max_ms) == (50, 150, 1050)


def test_a_client_can_ask_for_a_shorter_life() -> None:
    token = issued(30)
    assert (token.issue_ms, token.expiry_ms, token.max_ms) == (50, 80, 80)


def test_a_token_can_be_used_in_the_millisecond_in_which_it_expires() -> None:
    token = issued(0)
    assert not token.has_expired(150)
    assert token.has_expired(151)
    assert token.expiring_in(2000, 50).expiry_ms == 1050
    assert not token.expiring_in(2000, 50).has_expired(1050)
    assert token.expiring_in(2000, 50).has_expired(1051)


def test_owner_and_renewers_may_renew_and_the_requester_may_see() -> None:
    token = issued(0)
    assert [token.may_be_renewed_by(who) for who in (OWNER, BOB, CAROL)] == [True, False, True]
    assert [token.is_related_to(who) for who in (OWNER, BOB, CAROL)] == [True, True, True]
    stranger = Principal("User", "dave")
    assert not token.may_be_renewed_by(stranger)
    assert not token.is_related_to(stranger)


def test_a_notification_has_the_id() -> None:
    assert encode_token_change(TOKEN_ID) == TOKEN_ID.encode()
    assert decode_token_change(CHANGE, TOKEN_ID.encode()) == TOKEN_ID
    with pytest.raises(LayoutError, match="not UTF-8"):
        decode_token_change(CHANGE, b"\xff")
    with pytest.raises(LayoutError, match="no znode with the name"):
        decode_token_change(CHANGE, b"../a")


def test_an_id_must_be_the_name_of_a_znode() -> None:
    assert token_path(TOKEN_ID) == PATH
    with pytest.raises(LayoutError, match="no znode with the name ''"):
        token_path("")
