"""Client properties: what is understood, and errors that name the property and show no secret."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from odradek.base.errors import ConfigError
from odradek.base.system_ports import SystemClock
from odradek.security.client_security import ClientSecurity
from odradek.security.sasl.token_sources import TokenSourceError

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


def security(protocol: str, mechanism: str = "", jaas: str = "", **more: str) -> ClientSecurity:
    properties = {
        "security.protocol": protocol,
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas,
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    return ClientSecurity.from_properties(properties, SystemClock())


@pytest.mark.parametrize(("protocol", "tls"), [("PLAINTEXT", False), ("ssl", True), ("SSL", True), ("", False)])
def test_protocols_without_sasl(protocol: str, tls: bool) -> None:
    found = security(protocol, "ignored", "ignored")
    assert (found.tls is not None, found.new_exchange) == (tls, None)


@pytest.mark.parametrize(
    ("mechanism", "jaas"),
    [
        ("PLAIN", f'{PLAIN} username="alice" password="hunter2";'),
        ("SCRAM-SHA-256", f'{SCRAM} username="alice" password="hunter2";'),
        ("SCRAM-SHA-512", f'{SCRAM} username="id" password="hunter2" tokenauth="true";'),
        ("OAUTHBEARER", f'{BEARER} token="hunter2";'),
    ],
)
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_each_login_is_a_new_exchange(protocol: str, mechanism: str, jaas: str) -> None:
    found = security(protocol, mechanism, jaas)
    assert (found.tls is not None) == (protocol == "SASL_SSL")
    assert found.new_exchange is not None
    first, second = found.new_exchange(), found.new_exchange()
    assert first is not second
    assert first.mechanism == second.mechanism == mechanism
    assert "hunter2" not in repr(found) + repr(found.new_exchange) + repr(first)
    assert (b"tokenauth=true" in first.start()) == ("tokenauth" in jaas)


def test_a_token_in_a_file_needs_no_login_module_and_is_read_each_time(tmp_path: Path) -> None:
    path = tmp_path / "token"
    found = security("SASL_SSL", "OAUTHBEARER", sasl_oauthbearer_token_endpoint_url=path.as_uri())
    assert found.new_exchange is not None
    with pytest.raises(TokenSourceError):
        found.new_exchange()
    for token in ("one", "two"):
        path.write_text(token)
        assert token.encode() in found.new_exchange().start()


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"protocol": "TLS"}, r"security\.protocol=TLS is not allowed"),
        ({}, r"sasl\.mechanism=GSSAPI is not supported"),
        ({"mechanism": "SCRAM-SHA-1"}, r"sasl\.mechanism=SCRAM-SHA-1 is not supported"),
        ({"mechanism": "PLAIN"}, r"sasl\.jaas\.config is missing"),
        ({"mechanism": "PLAIN", "jaas": f'{SCRAM} password="hunter2";'}, r"sasl\.jaas\.config has the login module"),
        ({"mechanism": "PLAIN", "jaas": f'{PLAIN} password="hunter2";'}, r"sasl\.jaas\.config must have the options"),
        ({"mechanism": "PLAIN", "jaas": f'{PLAIN} username="\\0" password="hunter2";'}, r"sasl\.jaas\.config is not"),
        ({"mechanism": "OAUTHBEARER"}, r"sasl\.oauthbearer\.token\.endpoint\.url is missing"),
        ({"mechanism": "PLAIN", "sasl_login_class": "a.B"}, r"sasl\.login\.class=a\.B is not supported"),
        (
            {"mechanism": "OAUTHBEARER", "sasl_login_read_timeout_ms": "soon"},
            r"sasl\.login\.read\.timeout\.ms=soon is not allowed",
        ),
        ({"protocol": "SSL", "ssl_endpoint_identification_algorithm": "x"}, r"ssl\.endpoint\.identification"),
    ],
)
def test_errors_name_the_property(properties: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected) as caught:
        security(**{"protocol": "SASL_PLAINTEXT", **properties})
    assert "hunter2" not in json.dumps(str(caught.value))
