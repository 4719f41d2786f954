"""What is remembered about the client of a connection."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from odradek.security.principals import USER, Identity, Principal
from odradek.server.client_memo import memo_of
from odradek.server.throttling.charges import NO_ACCOUNT

ALICE = Identity(Principal(USER, "alice"), "10.0.0.1", "CLIENTS", "SASL_SSL")


def request_of(connection: Any) -> Any:
    return SimpleNamespace(connection=connection, identity=connection.identity)


def test_all_requests_of_a_connection_have_one_memo() -> None:
    first, second = (SimpleNamespace(memo=None, identity=ALICE) for _ in range(2))
    memo = memo_of(request_of(first))
    assert memo.identity is ALICE
    assert memo_of(request_of(first)) is memo
    assert memo_of(request_of(second)) is not memo


def test_nothing_is_known_about_another_identity() -> None:
    connection = SimpleNamespace(memo=None, identity=ALICE)
    memo_of(request_of(connection)).account = NO_ACCOUNT
    connection.identity = ALICE._replace(principal=Principal(USER, "bob"))
    assert memo_of(request_of(connection)).account is None
