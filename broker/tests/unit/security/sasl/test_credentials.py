"""SCRAM credentials: keys, salts and the text form of `/config/users`."""

from __future__ import annotations

from base64 import b64decode, b64encode

import pytest

from odradek.base.errors import ConfigError
from odradek.security.sasl.credentials import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SCRAM_MECHANISMS,
    SHA_256,
    SHA_512,
    ScramCredential,
    ScramMechanism,
    TokenCredential,
    credential_from_salted,
    derive,
    new_salt,
    salt_of,
    salted_password,
)

SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
"""Of the example in RFC 7677, whose password is `pencil`."""

MECHANISMS = pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS.values(), ids=lambda each: each.name)


@MECHANISMS
def test_the_text_form_is_read_and_written(mechanism: ScramMechanism) -> None:
    credential = derive("pencil", mechanism, 8192)
    text = credential.to_text()
    assert [part.partition("=")[0] for part in text.split(",")] == ["salt", "stored_key", "server_key", "iterations"]
    assert text.endswith(",iterations=8192")
    assert ScramCredential.from_text(mechanism, text) == credential
    assert ScramCredential.from_text(mechanism, ",".join(reversed(text.split(",")))) == credential


@MECHANISMS
def test_a_salted_password_gives_the_same_keys(mechanism: ScramMechanism) -> None:
    credential = derive("pencil", mechanism)
    salted = salted_password(mechanism, "pencil", credential.salt, credential.iterations)
    assert credential_from_salted(mechanism, salted, credential.salt, credential.iterations) == credential
    assert len(credential.stored_key) == len(credential.server_key) == mechanism.key_bytes


def test_passwords_are_not_normalised() -> None:
    """SASLprep would map the Roman numeral to `IX` and remove the soft hyphen. Kafka does neither."""
    one, other = (salted_password(SHA_256, text, SALT, MIN_ITERATIONS) for text in ("I\u00adX", "IX"))
    assert one != other


GOOD = "salt=c2FsdA==,stored_key={0},server_key={0},iterations=4096".format(b64encode(bytes(32)).decode())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "salt",
        GOOD + ",",
        GOOD + ",more=x",
        GOOD.replace("salt=", "sult="),
        GOOD.replace("salt=c2FsdA==", "salt="),
        GOOD.replace("salt=c2FsdA==", "salt=c2Fs dA=="),
        GOOD.replace("stored_key=AA", "stored_key="),
        GOOD.replace("4096", "0"),
        GOOD.replace("4096", "-1"),
        GOOD.replace("4096", "4_096"),
        GOOD.replace("4096", "\u0664"),
        GOOD.replace("4096", "9" * 5000),
        GOOD.replace("iterations=4096", "salt=c2FsdA=="),
        GOOD + "x" * 5000,
    ],
)
def test_other_texts_are_refused_and_never_shown(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ScramCredential.from_text(SHA_256, text)
    assert "AAAA" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_the_length_of_keys_belongs_to_the_mechanism() -> None:
    assert ScramCredential.from_text(SHA_256, GOOD).iterations == 4096
    with pytest.raises(ConfigError, match="64 bytes"):
        ScramCredential.from_text(SHA_512, GOOD)


@pytest.mark.parametrize("iterations", [0, MIN_ITERATIONS - 1, MAX_ITERATIONS + 1])
def test_iterations_have_kafka_s_bounds(iterations: int) -> None:
    with pytest.raises(ConfigError, match="4096 to 16384"):
        derive("pencil", SHA_256, iterations)


@pytest.mark.parametrize("password", ["", "geheim\ud800"])
def test_bad_passwords_are_refused_and_never_shown(password: str) -> None:
    with pytest.raises(ConfigError) as caught:
        derive(password, SHA_256)
    assert "geheim" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_salts_have_kafka_s_form() -> None:
    salts = [salt_of(number) for number in (0, 35, 36, (1 << 130) - 1)]
    assert salts == [b"0", b"z", b"10", b"1omfro7zwmumr3umxudzyj6scf"]
    assert len({new_salt() for _ in range(100)}) == 100
    assert derive("pencil", SHA_256).salt.isalnum()


def test_no_secret_is_shown() -> None:
    credential = derive("pencil", SHA_256)
    shown = repr(TokenCredential("alice", 1, credential))
    assert shown == "TokenCredential(owner='alice', expiry_ms=1, credential=ScramCredential(iterations=4096))"
