"""`odradek console`: serves the web console until Ctrl-C."""

from __future__ import annotations

import asyncio
import logging
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from odradek.cli.shared import connection_options, connection_properties, reporting_errors, run

if TYPE_CHECKING:
    from odradek.console.console_settings import ConsoleSettings


@click.command()
@connection_options
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8080, show_default=True, type=click.IntRange(0, 65_535), help="Port; 0 for a free one.")
@click.option(
    "--host-name",
    "host_names",
    multiple=True,
    metavar="NAME",
    help="Name in the address with which browsers reach the console; repeatable. Addresses and localhost are known.",
)
@click.option(
    "--tls-certificate", type=click.Path(path_type=Path), help="PEM file with the certificate chain, for HTTPS."
)
@click.option("--tls-key", type=click.Path(path_type=Path), help="PEM file with the private key of the certificate.")
@click.option(
    "--behind-tls-proxy", "is_behind_tls", is_flag=True, help="A proxy in front of the console accepts only HTTPS."
)
@click.option("--allow-changes", is_flag=True, help="Let users create, configure and delete topics and set offsets.")
def console(
    *,
    bootstrap: str,
    host: str,
    port: int,
    host_names: tuple[str, ...],
    tls_certificate: Path | None,
    tls_key: Path | None,
    is_behind_tls: bool,
    allow_changes: bool,
) -> None:
    """Serve a web page that shows the cluster: brokers, topics, groups with their lag, messages.

    On a cluster with SASL, visitors log in with a user of the cluster, and see what this user may see. The file of
    --command-config must not have credentials.

    \b
    Example:
      odradek console --bootstrap-server 127.0.0.1:9092 --port 8080
    """
    try:
        from odradek.console.console_settings import ConsoleSettings
    except ImportError as error:
        raise click.ClickException(
            f"`odradek console` needs a package that is not installed ({error}): pip install 'odradek[console]'."
        ) from error
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    with reporting_errors():
        settings = ConsoleSettings(
            properties=connection_properties(bootstrap),
            host=host,
            port=port,
            host_names=host_names,
            certificate=tls_certificate,
            key=tls_key,
            is_behind_tls=is_behind_tls,
            allow_changes=allow_changes,
        )
    run(_serve(settings))


async def _serve(settings: ConsoleSettings) -> None:
    from odradek.console.console_server import ConsoleServer

    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    server = ConsoleServer(settings)
    try:
        await server.start()
        click.echo(f"console: {server.url}")
        await stopped.wait()
    finally:
        await server.close()
