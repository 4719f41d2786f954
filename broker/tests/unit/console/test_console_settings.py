"""Settings that would show visitors what they may not see are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.base.errors import ConfigError
from odradek.console.console_settings import MECHANISMS, ConsoleSettings, Credentials
from odradek.security.sasl.jaas import parse_jaas

OPEN = {"bootstrap.servers": "127.0.0.1:9092"}
SASL = {**OPEN, "security.protocol": "SASL_PLAINTEXT"}


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        (SASL | {"sasl.jaas.config": "x"}, "every visitor would have the rights"),
        (SASL | {"sasl.oauthbearer.token.endpoint.url": "file:///t"}, "every visitor would have the rights"),
        (OPEN | {"security.protocol": "SSL", "ssl.keystore.location": "k"}, "listener with SASL"),
        (SASL | {"sasl.mechanism": "GSSAPI"}, "sasl.mechanism=GSSAPI"),
        (OPEN | {"security.protocol": "TLS"}, "security.protocol=TLS"),
    ],
)
def test_properties_with_credentials_are_refused(properties: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        ConsoleSettings(properties=properties)


def test_passwords_need_encryption_beyond_this_machine() -> None:
    with pytest.raises(ConfigError, match="without encryption"):
        ConsoleSettings(properties=SASL, host="0.0.0.0")
    assert not ConsoleSettings(properties=SASL, host="::1").uses_https
    assert ConsoleSettings(properties=SASL, host="0.0.0.0", is_behind_tls=True).uses_https
    assert ConsoleSettings(properties=SASL, host="0.0.0.0", certificate=Path("c.pem")).uses_https
    assert not ConsoleSettings(properties=OPEN, host="0.0.0.0").needs_login


def test_a_key_needs_its_certificate() -> None:
    with pytest.raises(ConfigError, match="--tls-certificate"):
        ConsoleSettings(properties=OPEN, key=Path("k.pem"))


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
def test_each_character_of_a_password_is_kept(mechanism: str) -> None:
    secret = 'a"b\\c; username="admin" \' \n\t='
    settings = ConsoleSettings(properties=SASL).client_settings(
        Credentials(mechanism=mechanism, user='al"ice', secret=secret)
    )
    assert settings.sasl_jaas_config is not None
    assert settings.sasl_mechanism == mechanism
    assert parse_jaas("x", settings.sasl_jaas_config).options == {"username": 'al"ice', "password": secret}
    assert secret not in repr(settings)


def test_a_token_is_the_whole_login() -> None:
    settings = ConsoleSettings(properties=SASL | {"sasl.mechanism": "OAUTHBEARER"})
    assert settings.mechanisms == ("OAUTHBEARER",)
    found = settings.client_settings(Credentials(mechanism="OAUTHBEARER", secret=" a.b.c "))
    assert parse_jaas("x", found.sasl_jaas_config or "").options == {"token": "a.b.c"}


@pytest.mark.parametrize(
    "credentials",
    [
        Credentials(mechanism="PLAIN", user="", secret="s"),
        Credentials(mechanism="PLAIN", user="u", secret=""),
        Credentials(mechanism="GSSAPI", user="u", secret="s"),
        Credentials(mechanism="PLAIN", user="u", secret="s" * 70_000),
        Credentials(mechanism="OAUTHBEARER", secret="not a token"),
    ],
)
def test_credentials_that_cannot_be_sent_are_refused(credentials: Credentials) -> None:
    with pytest.raises(ConfigError):
        ConsoleSettings(properties=SASL).client_settings(credentials)
