"""Where clients get tokens."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from odradek.base.errors import ConfigError
from odradek.security.sasl.http_client import OutboundRequest, OutboundResponse
from odradek.security.sasl.token_sources import (
    MAX_LIFETIME_S,
    MAX_TOKEN_BYTES,
    GrantedToken,
    StaticToken,
    TokenFile,
    TokenSource,
    TokenSourceError,
    token_source,
)
from odradek_testkit.loop import WALL_START_MS, ManualClock
from odradek_testkit.security.issuers import unsigned_token

URL = "https://issuer.example/token"
SETTING = "sasl.jaas.config"
OPTIONS = {"clientId": "me:x", "clientSecret": "geheim/+ß", "scope": "kafka read"}


class FalseIssuer:
    """Answers requests for tokens."""

    def __init__(self, *answers: object, status: int = 200) -> None:
        self.answers = list(answers)
        self.status = status
        self.requests: list[OutboundRequest] = []

    def __call__(self, request: OutboundRequest, /) -> OutboundResponse:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return OutboundResponse(self.status, answer if isinstance(answer, bytes) else json.dumps(answer).encode())


def source(
    issuer: FalseIssuer,
    clock: ManualClock | None = None,
    *,
    options: Mapping[str, str] = OPTIONS,
    **properties: str,
) -> TokenSource:
    named = {f"sasl.oauthbearer.{name.replace('_', '.')}": value for name, value in properties.items()}
    settings = {"sasl.oauthbearer.token.endpoint.url": URL} | named
    return token_source(settings, SETTING, options, issuer, clock or ManualClock())


def test_the_grant_is_requested_as_kafka_does() -> None:
    issuer = FalseIssuer({"access_token": "abc", "expires_in": 60})
    made = source(issuer)
    assert made.token() == "abc"
    assert isinstance(made, GrantedToken)
    (request,) = issuer.requests
    assert request.url == URL
    assert request.headers == {
        "Authorization": f"Basic {b64encode('me:x:geheim/+ß'.encode()).decode()}",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    assert request.body is not None
    assert parse_qs(request.body.decode()) == {"grant_type": ["client_credentials"], "scope": ["kafka read"]}


def test_id_and_secret_can_be_encoded() -> None:
    issuer = FalseIssuer({"access_token": "abc"})
    source(issuer, header_urlencode="true").token()
    encoded = b64encode(b"me%3Ax:geheim%2F%2B%C3%9F").decode()
    assert issuer.requests[0].headers["Authorization"] == f"Basic {encoded}"


def test_a_token_is_kept_for_most_of_its_lifetime() -> None:
    clock = ManualClock()
    issuer = FalseIssuer(*({"access_token": name, "expires_in": 100} for name in ("one", "two")))
    made = source(issuer, clock)
    assert made.token() == "one"
    clock.advance(79_999)
    assert made.token() == "one"
    clock.advance(2)
    assert made.token() == "two"


def test_the_old_token_is_used_until_it_expires_if_there_is_no_new_one() -> None:
    clock = ManualClock()
    issuer = FalseIssuer({"access_token": "one", "expires_in": 100}, OSError(111, "refused"), OSError(111, "refused"))
    made = source(issuer, clock)
    made.token()
    clock.advance(99_000)
    assert made.token() == "one"
    clock.advance(2_000)
    with pytest.raises(TokenSourceError, match="refused"):
        made.token()


def test_the_token_itself_may_have_the_lifetime() -> None:
    clock = ManualClock()
    token = unsigned_token({"alg": "RS256"}, b"x", exp=WALL_START_MS // 1000 + 100)
    issuer = FalseIssuer({"access_token": token}, {"access_token": "other"}, {"access_token": "another"})
    made = source(issuer, clock)
    assert made.token() == token
    clock.advance(79_000)
    assert made.token() == token
    clock.advance(2_000)
    assert made.token() == "other"
    assert made.token() == "another", "without lifetime, each exchange has a new one"


@pytest.mark.parametrize("lifetime", [10**400, 1e308, float("inf")])
def test_a_lifetime_without_bound_is_a_day(lifetime: float) -> None:
    day_ms = MAX_LIFETIME_S * 1000
    for first in (
        {"access_token": "one", "expires_in": lifetime},
        {"access_token": unsigned_token({"alg": "RS256"}, b"x", exp=lifetime)},
    ):
        clock = ManualClock()
        made = source(FalseIssuer(first, {"access_token": "two"}), clock)
        made.token()
        clock.advance(0.7 * day_ms)
        assert made.token() == first["access_token"]
        clock.advance(0.2 * day_ms)
        assert made.token() == "two"


@pytest.mark.parametrize(
    ("answer", "status", "reason"),
    [
        (OSError(111, "Connection refused"), 200, "does not answer: Connection refused"),
        (
            {"error": "invalid_client", "error_description": "no\nway", "other": "geheim"},
            401,
            r"status 401: 'invalid_client' 'no\\nway'",
        ),
        (b"<html>geheim", 503, "status 503: no reason"),
        (b"<html>geheim", 200, "without access_token"),
        ([], 200, "without access_token"),
        ({"access_token": 7}, 200, "without access_token"),
        ({"access_token": "geheim\x01"}, 200, "is not a bearer token"),
        ({"access_token": "x" * (MAX_TOKEN_BYTES + 1)}, 200, "is not a bearer token"),
    ],
)
def test_failures_have_a_reason_and_no_secret(answer: object, status: int, reason: str) -> None:
    with pytest.raises(TokenSourceError, match=reason) as caught:
        source(FalseIssuer(answer, status=status)).token()
    assert URL in str(caught.value)
    assert "geheim" not in str(caught.value)


def test_a_token_file_is_read_each_time(tmp_path: Path) -> None:
    path = tmp_path / "token"
    made = source(FalseIssuer(), token_endpoint_url=f"file://{path}", options={})
    assert made == TokenFile(str(path))
    with pytest.raises(TokenSourceError, match="No such file"):
        made.token()
    path.write_text("one\n")
    assert made.token() == "one"
    path.write_text("two")
    assert made.token() == "two"
    for bad in ("", "geheim geheim", "ä", "x" * (MAX_TOKEN_BYTES + 1)):
        path.write_text(bad)
        with pytest.raises(TokenSourceError, match="is not a bearer token") as caught:
            made.token()
        assert "geheim" not in str(caught.value)


def test_a_token_may_be_an_option() -> None:
    made = source(FalseIssuer(), token_endpoint_url="", options={"token": " abc "})
    assert made == StaticToken("abc")
    assert made.token() == "abc"
    with pytest.raises(TokenSourceError):
        StaticToken("a b").token()


@pytest.mark.parametrize(
    ("url", "options", "reason"),
    [
        ("", {}, "token.endpoint.url is missing"),
        ("ftp://x/", OPTIONS, "begins with"),
        (URL, {"clientId": "x"}, "clientId and clientSecret"),
        (URL, {"clientSecret": "geheim"}, "clientId and clientSecret"),
        (URL, {"token": "geheim\x01"}, "is not a bearer token"),
        (URL, OPTIONS | {"clientSecret": "geheim\ud800"}, "only characters of UTF-8"),
        (URL, OPTIONS | {"scope": "\udfff"}, "only characters of UTF-8"),
    ],
)
def test_bad_settings(url: str, options: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        source(FalseIssuer(), token_endpoint_url=url, options=options)
    assert "geheim" not in str(caught.value)


def test_whether_to_encode_is_true_or_false() -> None:
    with pytest.raises(ConfigError, match=r"header\.urlencode=yes is not allowed"):
        source(FalseIssuer(), header_urlencode="yes")


def test_no_secret_is_shown() -> None:
    made = source(FalseIssuer({"access_token": "geheimnis", "expires_in": 9}))
    made.token()
    assert "geheim" not in f"{made!r} {StaticToken('geheim')!r}"
    assert repr(made).startswith("GrantedToken(ClientCredentials(url='https://issuer.example/token', client_id='me:x'")
