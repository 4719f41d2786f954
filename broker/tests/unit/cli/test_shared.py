"""Shared functions of the commands: error messages, times, KEY=VALUE pairs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from odradek.base.errors import AuthenticationError, ConfigError, NetworkError, OdradekError, TopicAlreadyExistsError
from odradek.cli.main import COMMANDS, cli
from odradek.cli.records.time_options import parse_time
from odradek.cli.shared import (
    client_settings,
    connection_options,
    echo_json,
    message_with_hint,
    output_option,
    pairs,
    run,
)
from odradek.client.admin_kinds import ConsumerGroupState

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
    assert "--command-config" in message_with_hint(AuthenticationError("a:1 refused the client"))


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


@pytest.mark.parametrize(
    ("text", "before"), [("now", 0), ("-90s", 90_000), ("-1d2h", 93_600_000), ("-1w1ms", 604_800_001)]
)
def test_times_before_now(text: str, before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 1_700_000_000_000_000_000)
    assert parse_time(CONTEXT, PARAMETER, text) == 1_700_000_000_000 - before


def test_no_time_and_nonsense() -> None:
    assert parse_time(CONTEXT, PARAMETER, None) is None
    for wrong in ("noon", "-1", "-1y", "1h", "-"):
        with pytest.raises(click.BadParameter):
            parse_time(CONTEXT, PARAMETER, wrong)


def test_settings_of_a_command_can_be_overridden_but_the_servers_come_from_their_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = {"linger.ms": "7", "default.api.timeout.ms": "5", "no.such": "x", "bootstrap.servers": "other:1"}
    settings = client_settings("a:1", given, **{"linger.ms": 5})
    assert (settings.linger_ms, settings.default_api_timeout_ms) == (7, 5)
    assert "a" in settings.bootstrap_servers[0]
    assert "no.such" in capsys.readouterr().err


@click.command()
@connection_options
def show(bootstrap: str) -> None:
    settings = client_settings(bootstrap, {"client.id": "of the command"}, **{"linger.ms": 5, "retries": 6})
    click.echo(f"{settings.bootstrap_servers} {settings.client_id} {settings.linger_ms} {settings.retries}")
    click.echo(f"{settings.security_protocol} {settings.sasl_mechanism}")


JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required \\\n username="a" password="hunter2";'


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "client.properties"
    lines = ["# for alice", "bootstrap.servers = file:1", "client.id=of the file", "linger.ms=7"]
    lines += ["security.protocol=SASL_SSL", "sasl.mechanism=PLAIN", f"sasl.jaas.config={JAAS}", "nonsense=hunter2"]
    path.write_text("\n".join(lines))
    return path


def test_a_file_has_client_properties(config: Path) -> None:
    result = CliRunner().invoke(show, ["--command-config", str(config)])
    assert result.exit_code == 0, result.output
    assert "('file:1',) of the command 7 6" in result.output
    assert "SASL_SSL PLAIN" in result.output
    assert "nonsense has no effect" in result.output
    assert "hunter2" not in result.output
    by_variable = CliRunner().invoke(show, [], env={"ODRADEK_COMMAND_CONFIG": str(config)})
    assert by_variable.output == result.output


@pytest.mark.parametrize("given", [{"args": ["-b", "x:2"]}, {"args": [], "env": {"ODRADEK_BOOTSTRAP_SERVER": "x:2"}}])
def test_given_servers_precede_those_of_the_file(config: Path, given: dict[str, Any]) -> None:
    given["args"] += ["--command-config", str(config)]
    assert "('x:2',) " in CliRunner().invoke(show, **given).output


def test_a_file_that_cannot_be_read_or_used_is_named(config: Path) -> None:
    missing = CliRunner().invoke(show, ["--command-config", f"{config}.missing"])
    assert (missing.exit_code, "client.properties.missing cannot be read: No such file" in missing.output) == (1, True)
    config.write_bytes(b"\xff")
    assert "is not a text in UTF-8" in CliRunner().invoke(show, ["--command-config", str(config)]).output


def test_every_command_that_connects_has_the_option() -> None:
    def options(command: click.Command) -> Iterator[set[str]]:
        if isinstance(command, click.Group) and command is not cli:
            for each in command.commands.values():
                yield from options(each)
        else:
            yield {parameter.name or "" for parameter in command.params}

    context = click.Context(cli)
    found = 0
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        for names in options(command):
            assert ("bootstrap" in names) == ("command_config" in names)
            found += "command_config" in names
    assert found >= 8


@pytest.mark.parametrize(
    ("output", "printed"),
    [
        ("text", "people\n"),
        ("json", '{"name": "größe", "state": "Stable", "sizes": [1, null]}\n'),
        ("yaml", "---\nname: größe\nstate: Stable\nsizes:\n- 1\n- null\n"),
    ],
)
def test_results_are_printed_for_people_and_programs(output: str, printed: str) -> None:
    @click.command()
    @output_option
    def command(as_json: bool) -> None:
        if as_json:
            echo_json({"name": "größe", "state": ConsumerGroupState.STABLE, "sizes": [1, None]})
        else:
            click.echo("people")

    assert CliRunner().invoke(command, ["-o", output]).output == printed
