"""`odradek mirror`: copies topics of other clusters into one, until SIGTERM or Ctrl-C.

The first signal ends the process in order: it completes its transaction and leaves the group of the mirror. A second
one ends it at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from odradek.base.errors import ConfigError, OdradekError
from odradek.base.system_ports import SystemClock, report_termination
from odradek.cli.shared import echo_json, message_with_hint, output_option, reporting_errors
from odradek.cli.tables import Column, Table, show
from odradek.mirror.mirror_config import MirrorConfig

if TYPE_CHECKING:
    from odradek.metrics.http import HttpServer
    from odradek.mirror.mirror_process import MirrorProcess

_LOG: Final = logging.getLogger(__name__)
_LOG_FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
_IN_POD: Final = "KUBERNETES_SERVICE_HOST"
"""Environment variable of each pod. There, the host name is unique, and stays the same when the container restarts."""
_COLUMNS: Final = (
    Column("SOURCE"),
    Column("TOPIC"),
    Column("PARTITIONS", right=True),
    Column("OFFSETS", right=True),
    Column("COPY"),
    Column("PARTITIONS OF COPY", right=True),
)


@click.command()
@click.option(
    "--config", "path", required=True, type=click.Path(), metavar="FILE", help="Configuration, in YAML or JSON."
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65_535),
    help="Port of an HTTP server for /metrics, /livez and /readyz. Without it, there is none.",
)
@click.option("--metrics-host", default="0.0.0.0", show_default=True, help="Address of that server.")
@click.option(
    "--instance",
    envvar="ODRADEK_MIRROR_INSTANCE",
    show_envvar=True,
    metavar="NAME",
    help="Name that no other process of the mirror has. With the same name after a crash, it goes on at once. "
    "Default: in a pod its host name, otherwise a random one.",
)
@click.option("--check", is_flag=True, help="Connect to all clusters, show what would be copied, and exit.")
@click.option(
    "--reset",
    metavar="SOURCE/TOPIC",
    help="While the mirror is stopped, delete the copy of a topic and what is known about it, so that the next start "
    "copies it from the beginning; then exit.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation of --reset.")
@output_option
@click.option(
    "--log-level",
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"]),
    default="INFO",
    show_default=True,
    help="Lowest level of the log messages on standard error.",
)
def mirror(
    *,
    path: str,
    metrics_port: int | None,
    metrics_host: str,
    instance: str | None,
    check: bool,
    reset: str | None,
    yes: bool,
    as_json: bool,
    log_level: str,
) -> None:
    """Copy topics of other clusters into one, each record once and in order.

    Several processes with the same configuration share the partitions.

    \b
    Example:
      odradek mirror --config mirror.yaml --check
      odradek mirror --config mirror.yaml --metrics-port 9400
      odradek mirror --config mirror.yaml --reset east/orders
    """
    with reporting_errors():
        config = _read(path)
    if reset is not None:
        _reset(config, reset, yes=yes, as_json=as_json)
        return
    if check:
        _show_check(config, as_json=as_json)
        return
    logging.basicConfig(level=log_level, format=_LOG_FORMAT, stream=sys.stderr)
    is_static = instance is not None or _IN_POD in os.environ
    name = instance or (socket.gethostname() if is_static else secrets.token_hex(4))
    import uvloop

    sys.exit(uvloop.run(_serve(config, name, is_static, (metrics_host, metrics_port))))


def _read(path: str) -> MirrorConfig:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"--config {path} is not a text in UTF-8") from error
    except OSError as error:
        raise ConfigError(f"--config {path} cannot be read: {error.strerror}") from error
    return MirrorConfig.parse(text, path)


def _show_check(config: MirrorConfig, *, as_json: bool) -> None:
    from odradek.mirror.mirror_check import check_mirror

    with reporting_errors():
        topics = asyncio.run(check_mirror(config))
    if as_json:
        for each in topics:
            echo_json(
                {
                    "source": each.source,
                    "topic": each.topic,
                    "partitions": each.partitions,
                    "offsets": each.offsets,
                    "copy": each.target_topic,
                    "copyPartitions": each.target_partitions,
                }
            )
        return
    rows = tuple(
        (
            each.source,
            each.topic,
            str(each.partitions),
            str(each.offsets),
            each.target_topic,
            str(each.target_partitions) if each.target_partitions else "new",
        )
        for each in topics
    )
    show([Table("", _COLUMNS, rows, empty="No topic of any source matches topics.include.")])


def _reset(config: MirrorConfig, what: str, *, yes: bool, as_json: bool) -> None:
    from odradek.client.cluster_client import Cluster
    from odradek.mirror.following.copy_reset import reset_copy

    name, _, topic = what.partition("/")
    source = next((each for each in config.sources if each.name == name), None)
    if source is None or not topic:
        raise click.BadParameter(
            f"{what!r} is not SOURCE/TOPIC with one of the sources {', '.join(each.name for each in config.sources)}.",
            param_hint="--reset",
        )
    copy = source.target_topic(topic)
    if not yes:
        click.confirm(
            f"Delete topic {copy} of {config.target.bootstrap_servers} and copy it again?", abort=True, err=True
        )

    async def work() -> None:
        async with Cluster(config.target.settings()) as target:
            await reset_copy(config, source, topic, target)

    with reporting_errors():
        asyncio.run(work())
    if as_json:
        echo_json({"source": source.name, "topic": topic, "reset": copy})
    else:
        click.echo(f"Deleted {copy}. When the mirror starts, it copies {topic} of {source.name} from the beginning.")


async def _serve(config: MirrorConfig, instance: str, is_static: bool, metrics: tuple[str, int | None]) -> int:
    from odradek.mirror.mirror_process import MirrorProcess

    clock = SystemClock()
    process = MirrorProcess(config, instance=instance, is_static=is_static, clock=clock)
    _LOG.info("mirror %s starts as %s, with %d sources", config.name, instance, len(config.sources))
    loop = asyncio.get_running_loop()

    def stop() -> None:
        _LOG.info("the mirror ends after the transaction that goes on")
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        process.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    server = None
    try:
        server = _server(process, clock, *metrics)
        await process.run()
    except OdradekError as error:
        _LOG.error("the mirror ends: %s", message_with_hint(error))
        report_termination(f"The mirror ended: {error}")
        return 1
    finally:
        if server is not None:
            await server.close()
    _LOG.info("the mirror has ended")
    return 0


def _server(process: MirrorProcess, clock: SystemClock, host: str, port: int | None) -> HttpServer | None:
    """Start the server for metrics and probes, if there is a port."""
    if port is None:
        return None
    from prometheus_client import CollectorRegistry, ProcessCollector

    from odradek.metrics.http import HttpServer, Probe, metrics_route, probe_route
    from odradek.mirror.mirror_metrics import MirrorCollector

    registry = CollectorRegistry()
    registry.register(MirrorCollector(process.copiers, clock))
    ProcessCollector(registry=registry)
    routes = {
        "/metrics": metrics_route(registry),
        "/livez": probe_route(lambda: Probe(passed=True, reason="the event loop responds")),
        "/readyz": probe_route(process.ready),
    }
    server = HttpServer(host=host, port=port, routes=routes, setting="--metrics-port")
    server.start()
    _LOG.info("metrics are served at port %d", server.port)
    return server
