"""Delegation tokens: what is written is read, any other content is an error, and no token outlives its maximum."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from odradek.security.principals import Principal
from odradek.security.tokens import (
    TOKEN_CHANGES,
    DelegationToken,
    TokenLimits,
    decode_token,
    decode_token_change,
    encode_token,
    encode_token_change,
    token_path,
)
from odradek.znode import LayoutError, is_node_name

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
IDS = TEXTS.filter(is_node_name)
PRINCIPALS = st.builds(Principal, st.sampled_from(["User", "Group", ""]), TEXTS)
TIMES = st.integers(-(2**63), 2**63 - 1)
TOKENS = st.builds(
    DelegationToken,
    token_id=IDS,
    owner=PRINCIPALS,
    requester=PRINCIPALS,
    renewers=st.lists(PRINCIPALS, max_size=3).map(tuple),
    issue_ms=TIMES,
    max_ms=TIMES,
    expiry_ms=TIMES,
)


@given(TOKENS)
def test_a_written_token_is_read(token: DelegationToken) -> None:
    assert decode_token(token_path(token.token_id), encode_token(token)) == token


@given(TOKENS, st.data())
def test_a_damaged_token_is_a_token_or_an_error(token: DelegationToken, data: st.DataObject) -> None:
    encoded = bytearray(encode_token(token))
    for _ in range(data.draw(st.integers(1, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    with suppress(LayoutError):
        decode_token(token_path(token.token_id), bytes(encoded))


@given(IDS)
def test_a_written_notification_is_read(token_id: str) -> None:
    assert decode_token_change(f"{TOKEN_CHANGES}/a", encode_token_change(token_id)) == token_id


@given(st.binary(max_size=30))
def test_any_notification_is_an_id_or_an_error(data: bytes) -> None:
    with suppress(LayoutError):
        assert is_node_name(decode_token_change(f"{TOKEN_CHANGES}/a", data))


@given(
    st.builds(TokenLimits, st.integers(1, 2**63 - 1), st.integers(1, 2**63 - 1)),
    TIMES,
    st.integers(0, 2**62),
    st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 2**63 - 1)), max_size=4),
)
def test_no_token_outlives_its_maximum(
    limits: TokenLimits, lifetime_ms: int, now_ms: int, renewals: list[tuple[int, int]]
) -> None:
    owner = Principal("User", "alice")
    token = DelegationToken.issue("id", owner, owner, [], lifetime_ms=lifetime_ms, limits=limits, now_ms=now_ms)
    assert now_ms < token.expiry_ms <= token.max_ms <= now_ms + limits.max_lifetime_ms
    for later_ms, period_ms in renewals:
        renewed = token.expiring_in(period_ms, now_ms + later_ms)
        assert renewed.max_ms == token.max_ms >= renewed.expiry_ms
        assert renewed.has_expired(token.max_ms + 1)
