"""Shared functions of the commands: error messages, times, KEY=VALUE pairs."""

from __future__ import annotations

import click
import pytest

from odradek.base.errors import ConfigError, NetworkError, OdradekError, TopicAlreadyExistsError
from odradek.cli.consume import parse_time
from odradek.cli.shared import client_settings, message_with_hint, pairs, run

CONTEXT = click.Context(click.Command("consume"))
PARAMETER = click.Option(["--from-time"])


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConfigError("acks='7' is not allowed"), "acks='7' is not allowed."),
        (OdradekError("It ended."), "It ended."),
        (OdradekError(""), "OdradekError."),
        (
            TopicAlreadyExistsError("topic a exists already"),
            "topic a exists already. `odradek topic describe` shows it.",
        ),
    ],
)
def test_an_error_message_is_a_sentence(error: OdradekError, text: str) -> None:
    assert message_with_hint(error) == text


def test_a_network_error_has_a_hint() -> None:
    assert "--bootstrap-server" in message_with_hint(NetworkError("cannot connect to a:1"))


def test_errors_of_a_coroutine_become_click_errors() -> None:
    async def fail() -> None:
        raise ConfigError("it is wrong")

    with pytest.raises(click.ClickException) as raised:
        run(fail())
    assert (raised.value.message, raised.value.exit_code) == ("it is wrong.", 1)


def test_pairs() -> None:
    assert pairs(["a=1", " b =c=d", "e="]) == {"a": "1", "b": "c=d", "e": ""}
    for wrong in ("a", "=1"):
        with pytest.raises(click.BadParameter):
            pairs([wrong])


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0", 0),
        ("1357016400000", 1357016400000),
        ("2013-01-01T05:00:00", 1357016400000),
        ("2013-01-01 00:00:00-05:00", 1357016400000),
        ("2013-01-01", 1356998400000),
    ],
)
def test_times(text: str, milliseconds: int) -> None:
    assert parse_time(CONTEXT, PARAMETER, text) == milliseconds


def test_no_time_and_nonsense() -> None:
    assert parse_time(CONTEXT, PARAMETER, None) is None
    with pytest.raises(click.BadParameter):
        parse_time(CONTEXT, PARAMETER, "noon")


def test_settings_of_a_command_can_be_overridden_but_the_servers_come_from_their_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = {"linger.ms": "7", "default.api.timeout.ms": "5", "no.such": "x", "bootstrap.servers": "other:1"}
    settings = client_settings("a:1", given, **{"linger.ms": 5})
    assert (settings.linger_ms, settings.default_api_timeout_ms) == (7, 5)
    assert "a" in settings.bootstrap_servers[0]
    assert "no.such" in capsys.readouterr().err
