"""`odradek broker`: one broker process."""

from __future__ import annotations

import sys

import click


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
    from odradek.app.main import run

    sys.exit(run(properties, overrides, log_level=log_level))
