"""The command `odradek`: finds the sub-command that is asked for, and loads nothing else.

Enters: a command line. Leaves: an exit code: 0 done, 1 failed with a sentence that says why, 2 wrong usage. The table
`COMMANDS` names the core's commands with their one-line help, so that `odradek --help` imports none of them; other
parts of the distribution, which the core may not import, add theirs by the entry point group `odradek.commands`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Final, NamedTuple

import click

from odradek.base.version import VERSION

ENTRY_POINTS: Final = "odradek.commands"


class Lazy(NamedTuple):
    """A command that is not loaded yet."""

    target: str
    """`module:attribute`."""
    summary: str


COMMANDS: Final = {
    "broker": Lazy("odradek.cli.broker:broker", "Run one broker."),
    "topic": Lazy("odradek.cli.topics:topic", "List, create, describe and delete topics."),
    "produce": Lazy("odradek.cli.produce:produce", "Send lines of text to a topic."),
    "consume": Lazy("odradek.cli.consume:consume", "Print the records of a topic."),
    "group": Lazy("odradek.cli.groups:group", "List consumer groups; show their members and lag."),
    "log": Lazy("odradek.cli.logs.command:log", "Dump, verify or compact the files of a log, without a broker."),
}

EXTENSIONS: Final = {
    "up": "Run a whole cluster on this machine, from YAML.",
    "demo": "Run the demonstration: real events through brokers and Spark.",
}
"""One-line help of commands that come by entry points and are known; others are listed by the package they are of."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands: the core's in their order, then the others'."""
        return [*COMMANDS, *sorted(name for name in _extensions() if name not in COMMANDS)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None when there is none of this name."""
        if cmd_name in COMMANDS:
            module, _, attribute = COMMANDS[cmd_name].target.partition(":")
            return _as_command(getattr(import_module(module), attribute), cmd_name)
        extension = _extensions().get(cmd_name)
        if extension is None:
            return None
        try:
            return _as_command(extension.load(), cmd_name)
        except ImportError as error:
            raise click.ClickException(
                f"`odradek {cmd_name}` needs a package that is not here ({error}): install odradek with its extras."
            ) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, from the tables: nothing is imported."""
        rows = [(name, lazy.summary) for name, lazy in COMMANDS.items()]
        for name, point in sorted(_extensions().items()):
            if name not in COMMANDS:
                rows.append((name, EXTENSIONS.get(name, f"From {point.module.partition('.')[0]}.")))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _extensions() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def _as_command(loaded: object, name: str) -> click.Command:
    if not isinstance(loaded, click.Command):
        raise click.ClickException(f"`odradek {name}` is broken: what is registered for it is no command.")
    return loaded


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="odradek")
def cli() -> None:
    """Odradek, a Kafka-compatible broker cluster.

    \b
    To begin with:
      odradek up -f manifests/examples/          a cluster on this machine
      odradek topic create greetings             a topic in it
      echo hello | odradek produce greetings     a record
      odradek consume greetings --from-beginning --until-end
    """


def main() -> None:
    """Entry point of the script `odradek`."""
    cli.main(prog_name="odradek")


if __name__ == "__main__":
    sys.exit(main())  # type: ignore[func-returns-value]
