"""The command `odradek`: its list of commands, lazy imports, wrong arguments."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from odradek import __version__
from odradek.cli import main
from odradek.cli.main import COMMANDS, cli
from odradek_testkit.commands.command_examples import commands, examples

ALL_COMMANDS = dict(commands())
REFERENCE = Path(__file__).resolve().parents[4] / "docs/command-line.md"


def test_help_names_every_command() -> None:
    result = CliRunner().invoke(cli, ["--help"])
    assert result.exit_code == 0
    for name, lazy in COMMANDS.items():
        assert f"  {name}" in result.output
        assert lazy.summary in result.output
    assert "up " in result.output


def test_help_imports_neither_client_nor_broker_nor_rich() -> None:
    program = (
        "import sys, odradek.cli.main as m\n"
        "try: m.cli.main(['--help'], prog_name='odradek')\n"
        "except SystemExit: pass\n"
        "heavy = ('rich', 'kio', 'uvloop', 'kazoo', 'asyncio', 'odradek.client', 'odradek.app', 'odradek_operator')\n"
        "print('LOADED', [name for name in heavy if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[-1] == "LOADED []"


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_can_be_loaded_and_its_help_has_an_example(name: str) -> None:
    result = CliRunner().invoke(cli, [name, "--help"])
    assert result.exit_code == 0
    assert "Example:" in result.output
    assert f"odradek {name}" in result.output


EXTERNAL = ("demo", "up")
"""Commands of other packages. They have options of their own for the output."""
WITHOUT_OUTPUT = ("broker", "completion", "console", *EXTERNAL)


@pytest.mark.parametrize("path", list(ALL_COMMANDS))
def test_the_help_of_every_command_has_an_example(path: str) -> None:
    # A live test runs the examples.
    lines = examples(ALL_COMMANDS[path])
    assert any(re.search(rf"(^|\| )odradek {path}( |$)", line) for line in lines), lines


@pytest.mark.parametrize("path", [path for path in ALL_COMMANDS if path not in WITHOUT_OUTPUT])
def test_every_command_prints_text_json_and_yaml(path: str) -> None:
    command = ALL_COMMANDS[path]
    if not isinstance(command, click.Group):
        (output,) = (option for option in command.params if "--output" in option.opts)
        assert isinstance(output.type, click.Choice)
        assert list(output.type.choices) == ["text", "json", "yaml"]


def test_the_reference_lists_every_command() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    listed = re.findall(r"^\| `odradek ([a-z -]+)` \|", text, re.MULTILINE)
    assert sorted(listed) == sorted(
        path for path, command in ALL_COMMANDS.items() if not isinstance(command, click.Group)
    )


def test_the_version() -> None:
    assert CliRunner().invoke(cli, ["--version"]).output == f"odradek, version {__version__} (interpreted core)\n"


def test_an_unknown_command_is_an_error() -> None:
    assert CliRunner().invoke(cli, ["tpoic"]).exit_code == 2


def test_other_packages_add_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    points = {
        "path": EntryPoint("path", "os.path:join", main.ENTRY_POINTS),
        "gone": EntryPoint("gone", "no_such_module:command", main.ENTRY_POINTS),
        "echo": EntryPoint("echo", f"{__name__}:echo", main.ENTRY_POINTS),
    }
    monkeypatch.setattr(main, "_extensions", lambda: points)
    listed = CliRunner().invoke(cli, ["--help"]).output
    assert "From os." in listed
    missing = CliRunner().invoke(cli, ["gone"])
    assert missing.exit_code == 1
    assert "`odradek gone` needs a package that is not installed" in missing.output
    broken = CliRunner().invoke(cli, ["path"])
    assert "`odradek path` cannot run" in broken.output
    assert CliRunner().invoke(cli, ["echo"]).output == "heard\n"


@click.command()
def echo() -> None:
    """A command of another package."""
    click.echo("heard")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["topic", "list", "-b", "127.0.0.1:1", "-o", "xml"], "'xml' is not one of 'text', 'json', 'yaml'"),
        (["topic", "create", "t", "-p", "0"], "0 is not in the range x>=1"),
        (["topic", "create", "t", "-c", "retention"], "'retention' is not of the form KEY=VALUE."),
        (["topic", "delete"], "Missing argument 'NAME…'"),
        (["produce", "t", "-k", ""], "must not be empty"),
        (["produce", "t", "-f", "/no/such/file"], "'/no/such/file' does not exist"),
        (["produce", "t", "-f", "/"], "/ is a directory: use --whole"),
        (["produce", "t", "-i", "json", "-k", ":"], "--input json cannot be combined with"),
        (["produce", "t", "--whole", "--empty-as-null"], "--whole cannot be combined with"),
        (["produce", "t", "--name-as-key"], "--name-as-key needs --whole"),
        (["produce", "t", "--tombstone", "-k", ":"], "--tombstone cannot be combined with"),
        (["produce", "t", "--key", "a", "-k", ":"], "--key cannot be combined with --key-separator"),
        (["produce", "t", "-H", "a"], "'a' is not of the form KEY=VALUE"),
        (["produce", "t", "--rate", "0"], "0.0 is not in the range"),
        (["consume"], "Missing argument 'TOPIC…'"),
        (["consume", "t", "u", "-p", "1", "--offset", "4"], "--offset needs exactly one --partition of one topic"),
        (["consume", "t", "--end-offset", "4"], "--end-offset needs exactly one --partition"),
        (["consume", "t", "--last", "1", "--last-total", "1"], "are mutually exclusive"),
        (["consume", "t", "-g", "g", "--last", "1"], "--group cannot be combined with"),
        (["consume", "t", "-g", "g", "--until-time", "0"], "--until-time cannot be used with --group"),
        (["consume", "-r", "("], "'(' is not a regular expression"),
        (["consume", "t", "--value-decoder", "avro"], "'avro' is not one of 'string', 'hex'"),
        (["consume", "t", "--offset", "4"], "--offset needs exactly one --partition"),
        (["consume", "t", "--offset", "4", "-p", "1", "-p", "2"], "--offset needs exactly one --partition"),
        (["consume", "t", "--from-beginning", "--from-time", "1"], "are mutually exclusive"),
        (["consume", "t", "-g", "g", "-p", "1"], "--group cannot be combined with"),
        (["consume", "t", "-g", "g", "-e"], "--until-end cannot be used with --group"),
        (["consume", "t", "--from-time", "noon"], "'noon' is neither an ISO 8601 time"),
        (["consume", "t", "--format", "{colour}"], "{colour} is not a field; the fields are {topic}"),
        (["group", "describe"], "Name groups, or use --all."),
        (["group", "describe", "g", "--all"], "Name groups, or use --all."),
        (["group", "list", "--state", "Asleep"], "'Asleep' is not one of 'preparingrebalance'"),
        (["group", "reset", "g"], "Give one target: --to-earliest"),
        (["group", "reset", "g", "--to-earliest", "--to-offset", "0"], "Give one target: --to-earliest"),
        (["group", "reset", "g", "--to-earliest"], "Give the partitions: --topic or --all-topics."),
        (["group", "reset", "g", "--to-earliest", "--topic", "t", "--all-topics"], "Give the partitions"),
        (["group", "reset", "g", "--to-earliest", "--topic", "t:x"], "'t:x' is not of the form TOPIC"),
        (["group", "reset", "g", "--by-duration", "1h", "--all-topics"], "'1h' is not a duration such as P7D"),
        (["group", "reset", "g", "--from-file", "/no/such.csv"], "'/no/such.csv' does not exist"),
        (["group", "reset", "g", "--to-latest", "--all-topics", "--export", "-o", "json"], "exclude each other"),
        (["config", "list"], "Name one topic or broker"),
        (["config", "list", "--broker", "1", "--broker-logger", "1"], "Name one topic or broker"),
        (["elect", "preferred"], "Name topics with --topic, or use --all."),
        (["elect", "preferred", "--all", "--topic", "t"], "Name topics with --topic, or use --all."),
        (["elect", "preferred", "--all", "--partition", "0"], "--partition needs exactly one --topic."),
        (["elect", "clean", "--all"], "'clean' is not one of 'preferred', 'unclean'"),
        (["reassign", "start", "/no/such/plan.json"], "'/no/such/plan.json' does not exist"),
        (["reassign", "plan", "-r", "0"], "0 is not in the range x>=1"),
        (["perf", "produce", "t", "--throughput", "0"], "0.0 is not in the range x>0"),
        (["token", "renew"], "Missing argument 'HMAC'"),
        (["token", "renew", "?"], "the HMAC must be in base64"),
        (["token", "expire", ""], "the HMAC must be in base64"),
        (["token", "expire", "AAAA", "--period-ms", "-2"], "-2 is not in the range x>=-1"),
        (["transaction", "list", "--state", "Sleeping"], "'Sleeping' is not one of 'empty', 'ongoing'"),
        (["transaction", "describe"], "Missing argument 'TRANSACTIONAL_ID…'"),
        (["transaction", "abort", "--topic", "t", "--partition", "0"], "Missing option '--start-offset'"),
        (["transaction", "abort", "tx", "--producer-id", "1"], "Missing option '--producer-epoch'"),
        (["transaction", "abort"], "of a prepared transaction, or --topic,"),
        (["transaction", "commit", "tx", "--producer-id", "1"], "Missing option '--producer-epoch'"),
    ],
)
def test_wrong_arguments_have_exit_code_2(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 2
    assert words in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["topic", "list", "-b", "nonsense"], "bootstrap.servers"),
        (["produce", "t", "-X", "acks=7"], "acks='7' is not allowed"),
        (["consume", "t", "-X", "isolation.level=dirty"], "isolation.level='dirty' is not allowed"),
    ],
)
def test_a_bad_setting_is_an_error_without_a_trace_with_exit_code_1(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")
    assert words in result.output
    assert result.output.rstrip().endswith(".")


def test_a_broker_without_properties_is_an_error_without_a_trace() -> None:
    command = [sys.executable, "-m", "odradek.cli.main", "broker", "/no/such/server.properties"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert "/no/such/server.properties cannot be read" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_an_abort_of_a_transaction_needs_a_confirmation() -> None:
    place = ["--topic", "orders", "--partition", "3", "--start-offset", "1042"]
    result = CliRunner().invoke(cli, ["transaction", "abort", *place], input="n\n")
    assert result.exit_code == 1
    assert "Abort the transaction in orders-3 that starts at offset 1042? [y/N]" in result.output


@pytest.mark.parametrize("verb", ["commit", "abort"])
def test_the_end_of_a_prepared_transaction_needs_a_confirmation(verb: str) -> None:
    arguments = ["transaction", verb, "tx", "--producer-id", "7", "--producer-epoch", "3"]
    result = CliRunner().invoke(cli, arguments, input="n\n")
    assert result.exit_code == 1
    assert f"{verb.capitalize()} the transaction of tx (producer id 7, epoch 3)? [y/N]" in result.output


def test_a_hanging_and_a_prepared_transaction_are_not_aborted_together() -> None:
    prepared = ["tx", "--producer-id", "7", "--producer-epoch", "3"]
    hanging = ["--topic", "orders", "--partition", "3", "--start-offset", "1042"]
    assert CliRunner().invoke(cli, ["transaction", "abort", *prepared, *hanging]).exit_code == 2
