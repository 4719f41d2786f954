"""The command `odradek`: loads only the requested subcommand.

Exit codes are 0 for success, 1 for a failure with a message, and 2 for wrong arguments. `COMMANDS` has the one-line
help of the core's commands, so that `odradek --help` imports none of them. Other packages of the distribution add
commands through the entry point group `odradek.commands`, because the core must not import them.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Final, NamedTuple

import click
from click.shell_completion import CompletionItem

from odradek.base import VERSION
from odradek.base.build_form import build_form

ENTRY_POINTS: Final = "odradek.commands"


class Lazy(NamedTuple):
    """A command that is imported when it is used."""

    target: str
    """`module:attribute`."""
    summary: str


COMMANDS: Final = {
    "broker": Lazy("odradek.cli.main:broker", "Run one broker."),
    "cluster": Lazy("odradek.cli.cluster_commands:cluster", "Show brokers, health, log directories and features."),
    "topic": Lazy("odradek.cli.topics.topic_commands:topic", "List, create, describe, change and delete topics."),
    "produce": Lazy("odradek.cli.records.produce:produce", "Send records to a topic: lines, JSON or files."),
    "consume": Lazy("odradek.cli.records.consume:consume", "Print the records of topics."),
    "group": Lazy(
        "odradek.cli.groups.group_commands:group", "List consumer groups, show their lag, reset their offsets."
    ),
    "transaction": Lazy(
        "odradek.cli.transaction_commands:transaction", "List transactions; find and abort those that hang."
    ),
    "config": Lazy("odradek.cli.config_commands:config", "Show and change settings of topics, brokers and loggers."),
    "elect": Lazy("odradek.cli.elect_command:elect", "Elect the leaders of partitions."),
    "reassign": Lazy(
        "odradek.cli.reassign.reassign_commands:reassign", "Plan, start, watch and cancel moves of replicas."
    ),
    "perf": Lazy("odradek.cli.perf.perf_commands:perf", "Measure the throughput and the latency of a cluster."),
    "acl": Lazy("odradek.cli.acl_commands:acl", "Show and change who may do what."),
    "user": Lazy("odradek.cli.user_commands:user", "List users with passwords (SCRAM), add and remove them."),
    "quota": Lazy("odradek.cli.quota_commands:quota", "Show and change what clients may use."),
    "token": Lazy("odradek.cli.token_commands:token", "Create, renew, expire and list delegation tokens."),
    "console": Lazy("odradek.cli.console_command:console", "Serve a web page that shows the cluster."),
    "profile": Lazy("odradek.cli.profiles.profile_commands:profile", "Manage named client settings for all commands."),
    "completion": Lazy(
        "odradek.cli.completion.completion_command:completion", "Print a script for completion in a shell."
    ),
    "mirror": Lazy("odradek.cli.mirror_command:mirror", "Copy topics of other clusters into one, exactly once."),
    "log": Lazy("odradek.cli.logs.command:log", "Dump, verify or compact the files of a log, without a broker."),
}

EXTENSIONS: Final = {
    "up": "Run a whole cluster on this machine, from YAML.",
    "demo": "Run the demonstration: real events through brokers and Spark.",
}
"""One-line help of the commands that our other packages add. Any other command is listed with its package's name."""


class LazyGroup(click.Group):
    """A command group that imports a command when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands: those of the core first."""
        return [*COMMANDS, *sorted(name for name in _extensions() if name not in COMMANDS)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command. Returns None if it does not exist."""
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
                f"`odradek {cmd_name}` needs a package that is not installed ({error}): install odradek's extras."
            ) from error

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the names of commands from the tables, without importing them."""
        options = click.Command.shell_complete(self, ctx, incomplete)
        summaries = {name: lazy.summary for name, lazy in COMMANDS.items()}
        summaries = {name: EXTENSIONS.get(name, "") for name in sorted(_extensions())} | summaries
        found = [CompletionItem(name, help=text) for name, text in summaries.items() if name.startswith(incomplete)]
        return [*found, *options]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands from the tables, without importing them."""
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
        raise click.ClickException(f"`odradek {name}` cannot run: its entry point is not a command.")
    return loaded


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="odradek", message=f"%(prog)s, version %(version)s ({build_form()} core)")
def cli() -> None:
    """Odradek, a Kafka-compatible broker cluster.

    \b
    Getting started:
      odradek up -f manifests/examples/          a cluster on this machine
      odradek topic create greetings             create a topic
      echo hello | odradek produce greetings     send a record
      odradek consume greetings --from-beginning --until-end
    """


@click.command()
@click.argument("properties", type=click.Path())
@click.option(
    "--override", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a property of the file; repeatable."
)
@click.option(
    "--log-level",
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"]),
    default="INFO",
    show_default=True,
    help="Lowest level of the log messages on standard error.",
)
def broker(properties: str, overrides: tuple[str, ...], log_level: str) -> None:
    """Run one broker until SIGTERM or Ctrl-C.

    PROPERTIES is a file with Kafka's broker properties. It must set at least broker.id, zookeeper.connect, listeners
    and log.dirs.

    \b
    Example:
      odradek broker server.properties --override broker.id=2 --override listeners=PLAINTEXT://127.0.0.1:9094
    """
    from odradek.app.broker_process import run

    sys.exit(run(properties, overrides, log_level=log_level))


def main() -> None:
    """Entry point of the script `odradek`."""
    cli.main(prog_name="odradek")


if __name__ == "__main__":
    sys.exit(main())  # type: ignore[func-returns-value]
