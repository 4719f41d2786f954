"""`odradek-pod exporter`: runs the exporter of one cluster until SIGTERM or SIGINT.

Some options can be set by environment variables; see the help. It logs to standard error. Exit codes: 0 after a signal,
1 with a message after an error, 2 for invalid options.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Mapping
from typing import Final

import click

from odradek.base.errors import OdradekError
from odradek.client.config_files import CONFIG_VARIABLE, read_config_file
from odradek.client.settings import ClientSettings
from odradek.security.tls.tls_settings import TlsSettings
from odradek.zk.port import ZkSettings
from odradek_operator.exporter.exporter_settings import EVERYTHING, NOTHING, ExporterSettings, NameFilter
from odradek_operator.exporter.service import Exporter, Place

_DEFAULTS: Final = ExporterSettings()
_LOG_FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"

_HELP: Final = """\
Export consumer lag and log sizes of a cluster: /metrics for Prometheus, /topics for the operator.

Run one exporter per cluster. With two, dashboards count everything twice.

\b
Example:
  odradek-pod exporter --bootstrap my-cluster-kafka-bootstrap:9091
"""


@click.command(help=_HELP, context_settings={"max_content_width": 110, "show_default": True})
@click.option(
    "--bootstrap", envvar="BOOTSTRAP_SERVERS", show_envvar=True, required=True, help="Bootstrap brokers: host:port,…"
)
@click.option(
    "--command-config",
    envvar=CONFIG_VARIABLE,
    show_envvar=True,
    metavar="FILE",
    help="File of client properties, such as security.protocol and ssl.truststore.location.",
)
@click.option(
    "--zookeeper",
    envvar="ZOOKEEPER_CONNECT",
    show_envvar=True,
    help="Connect string of the ensemble with offsets of old consumers: host:port,…/chroot.",
)
@click.option(
    "--zookeeper-config",
    envvar="ZOOKEEPER_CONFIG",
    show_envvar=True,
    metavar="FILE",
    help="File with ssl.* properties for ZooKeeper, such as ssl.keystore.location. Without it, there is no TLS.",
)
@click.option("--host", default="0.0.0.0", help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65_535), default=9404, help="Port to listen on; 0 chooses a free one.")
@click.option("--interval", type=float, default=_DEFAULTS.interval, help="Seconds between collections.")
@click.option(
    "--sizes-interval",
    type=float,
    default=_DEFAULTS.sizes_interval,
    help="Seconds between collections of sizes and of offsets in ZooKeeper.",
)
@click.option(
    "--request-timeout", type=float, default=_DEFAULTS.request_timeout, help="Timeout of a request in seconds."
)
@click.option("--stale-after", type=float, default=_DEFAULTS.stale_after, help="Age in seconds at which values expire.")
@click.option("--lag-cap", type=float, default=_DEFAULTS.lag_cap, help="Maximum reported lag in seconds.")
@click.option("--brokers-at-once", type=int, default=_DEFAULTS.brokers_at_once, help="Brokers queried concurrently.")
@click.option(
    "--groups-per-topic",
    type=int,
    default=_DEFAULTS.groups_per_topic,
    help="Maximum number of groups per topic in /topics.",
)
@click.option(
    "--max-groups", type=int, default=_DEFAULTS.max_groups, help="Maximum number of observed groups per broker."
)
@click.option("--topics", default=EVERYTHING, help="Regular expression that selects topics.")
@click.option("--topics-exclude", default=NOTHING, help="Regular expression of excluded topics.")
@click.option("--groups", default=EVERYTHING, help="Regular expression that selects groups.")
@click.option("--groups-exclude", default=NOTHING, help="Regular expression of excluded groups.")
@click.option("-X", "--property", "properties", multiple=True, metavar="KEY=VALUE", help="Client property; repeatable.")
@click.option(
    "--log-level", type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"]), default="INFO", help="Log level."
)
def exporter(**options: object) -> None:
    """Run the command. `_HELP` is its help text."""
    logging.basicConfig(level=str(options.pop("log_level")), format=_LOG_FORMAT, stream=sys.stderr)
    # kazoo warns of each lost connection and each retry. Our client already logs them.
    logging.getLogger("kazoo").setLevel(logging.ERROR)
    try:
        asyncio.run(_run(*parsed(options)))
    except OdradekError as error:
        raise click.ClickException(str(error)) from error


def parsed(options: dict[str, object]) -> tuple[Place, ExporterSettings]:
    """Convert the options of the command line into settings. Raises `ConfigError`."""
    names = {
        name: NameFilter.of(str(options.pop(name)), str(options.pop(f"{name}_exclude")))
        for name in ("topics", "groups")
    }
    bootstrap, zookeeper = str(options.pop("bootstrap")), options.pop("zookeeper")
    config, zookeeper_config = options.pop("command_config"), options.pop("zookeeper_config")
    file = {} if config is None else read_config_file(str(config), option="--command-config")
    properties = options.pop("properties")
    place = {"host": str(options.pop("host")), "port": options.pop("port")}
    settings = ExporterSettings(**options, **names)  # type: ignore[arg-type]
    client = client_settings(bootstrap, settings, properties, file)  # type: ignore[arg-type]
    reached = zookeeper_settings(str(zookeeper), zookeeper_config) if zookeeper else None
    return Place(client=client, zookeeper=reached, **place), settings  # type: ignore[arg-type]


def zookeeper_settings(connect: str, config: object) -> ZkSettings:
    """Return the settings of the connection to the ensemble. `config`: the file with the properties of TLS, or None.

    Raises `ConfigError`.
    """
    if config is None:
        return ZkSettings(connect=connect)
    properties = read_config_file(str(config), option="--zookeeper-config")
    return ZkSettings(connect=connect, tls=TlsSettings.from_properties(properties))


def client_settings(
    bootstrap: str, settings: ExporterSettings, properties: tuple[str, ...] = (), file: Mapping[str, str] | None = None
) -> ClientSettings:
    """Return the settings of the client. Its timeouts derive from `request_timeout`. Raises `ConfigError`.

    `properties`, as KEY=VALUE, precede those of the `file`.
    """
    timeout_ms = str(int(settings.request_timeout * 1000))
    given = dict(pair.partition("=")[::2] for pair in properties)
    client, warnings = ClientSettings.parse(
        {
            "client.id": "odradek-exporter",
            "request.timeout.ms": timeout_ms,
            "default.api.timeout.ms": str(2 * int(timeout_ms)),
            "socket.connection.setup.timeout.ms": timeout_ms,
            **(file or {}),
            **given,
            "bootstrap.servers": bootstrap,
        }
    )
    for warning in warnings:
        logging.getLogger(__name__).warning("%s", warning)
    return client


async def _run(place: Place, settings: ExporterSettings) -> None:
    exporter = Exporter(place, settings)
    work = asyncio.ensure_future(_serve(exporter))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, work.cancel)
    try:
        await work
    except asyncio.CancelledError:
        logging.getLogger(__name__).info("stopping after a signal")


async def _serve(exporter: Exporter) -> None:
    exporter.start()
    logging.getLogger(__name__).info("listening on port %d", exporter.port)
    try:
        await exporter.run()
    finally:
        await exporter.close()
