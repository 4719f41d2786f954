"""`odradek up`: runs an embedded cluster in the foreground until Ctrl-C. Registered in the group `odradek.commands`.

It prints progress as lines for a person, or as one JSON object per line. The exit code is 0 if it was asked to stop, 1
after an error, 2 for wrong usage. Programs can wait for the line `ready: bootstrap ... zookeeper ...`. Errors are
printed without a stack trace.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from odradek.base.errors import OdradekError
from odradek_operator.embedded.embedded_cluster import EmbeddedCluster, Options
from odradek_operator.embedded.layout import Ports
from odradek_operator.embedded.manifests import Manifests, only_cluster
from odradek_operator.embedded.ports import LOOPBACK
from odradek_operator.embedded.progress import Event, ProgressKind, Report

if TYPE_CHECKING:
    from odradek.console.console_server import ConsoleServer

_EXAMPLE: Final = """\
Run a whole cluster on this machine: ZooKeeper, brokers, and the operator core, from the same YAML as on Kubernetes.

Edit the YAML while it runs, and the cluster follows. Topics, partitions and their configurations change at once. More
brokers get their share of the replicas; fewer are drained first. Dynamic broker properties and listeners change without
a restart, other properties by a restart of one broker at a time. An invalid edit changes nothing and is reported.

Broker N listens on the base port + N, and on the port of each further listener + N. Every process serves /metrics;
prometheus.yml in --data-dir scrapes them all for the dashboards. It prints
the address of a web console.

Ctrl-C stops everything in order. The data stays in --data-dir for the next start.

\b
Example:
  odradek up -f manifests/examples/
  odradek topic list --bootstrap-server 127.0.0.1:9092
"""

_EVENTS: Final = 50
"""How many events the console shows."""
_PORT: Final = click.IntRange(1, 65_535)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arguments:
    """The command line."""

    files: tuple[Path, ...]
    data: Path
    zookeeper_port: int
    base_port: int
    metrics_base_port: int
    monitoring_port: int
    zookeeper_jars: Path | None
    console_port: int
    no_console: bool


@click.command(help=_EXAMPLE, context_settings={"max_content_width": 110})
@click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    required=True,
    type=click.Path(path_type=Path),
    help="Manifest, or folder of manifests. Can be given several times.",
)
@click.option(
    "--data-dir",
    "data",
    default=".odradek",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Folder of all data.",
)
@click.option("--zookeeper-port", default=2181, show_default=True, type=_PORT, help="Port of ZooKeeper.")
@click.option(
    "--base-port", default=9092, show_default=True, type=_PORT, help="Port of broker 0; broker N has this port + N."
)
@click.option(
    "--metrics-base-port",
    default=9404,
    show_default=True,
    type=_PORT,
    help="Port of /metrics of broker 0; others likewise.",
)
@click.option(
    "--monitoring-port",
    default=9401,
    show_default=True,
    type=_PORT,
    help="Port of /metrics of the operator. ZooKeeper and the exporter of consumer lag have the next two.",
)
@click.option(
    "--zookeeper-jars", type=click.Path(path_type=Path), help="Folder of ZooKeeper's jars. Default: PySpark's."
)
@click.option(
    "--console-port",
    default=0,
    show_default="a free port",
    type=click.IntRange(0, 65_535),
    help="Port of the web console, which only this machine can reach.",
)
@click.option("--no-console", is_flag=True, help="Do not serve the web console.")
@click.option(
    "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Format of the output."
)
@click.option("-v", "--verbose", is_flag=True, help="Write the log of the operator core to standard error.")
def up(*, output: str, verbose: bool, **arguments: object) -> None:
    """Run the command; `_EXAMPLE` is its help."""
    logging.basicConfig(level=logging.INFO if verbose else logging.ERROR, format="%(levelname)s %(name)s: %(message)s")
    report = json_report if output == "json" else text_report(color=sys.stdout.isatty())
    try:
        asyncio.run(_run(_Arguments(**arguments), report))  # type: ignore[arg-type]
    except OdradekError as error:
        raise click.ClickException(str(error)) from error


async def _run(arguments: _Arguments, report: Report) -> None:
    manifests = Manifests(arguments.files)
    resources = manifests.load()
    ports = Ports.in_rows(
        only_cluster(resources).brokers.replicas,
        zookeeper=arguments.zookeeper_port,
        base=arguments.base_port,
        metrics_base=arguments.metrics_base_port,
        monitoring=arguments.monitoring_port,
    )
    options = Options(data=arguments.data, ports=ports, zookeeper_jars=arguments.zookeeper_jars)
    events = RecentEvents(report)
    cluster = EmbeddedCluster(manifests, resources, options, events)
    stop = _Stop(cluster)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    console = None
    try:
        if not arguments.no_console:
            console = await _start_console(arguments.console_port, cluster.bootstrap, events)
        await stop.unless_asked(cluster.start())
        await cluster.serve(stop.asked.wait)
    except asyncio.CancelledError:
        if not stop.asked.is_set():
            raise
    finally:
        if console is not None:
            await console.close()
        await cluster.stop()
    report(Event(ProgressKind.STOPPED, "stopped", "all processes have ended"))


class RecentEvents:
    """Passes events on, adds the address of the console to that of the ready cluster, and remembers the latest ones for
    the console.
    """

    def __init__(self, report: Report) -> None:
        """Events go to `report`."""
        self._report = report
        self._recent: deque[tuple[int, Event]] = deque(maxlen=_EVENTS)
        self.console_url = ""

    def __call__(self, event: Event) -> None:
        """Report an event."""
        self._recent.appendleft((time.time_ns() // 1_000_000, event))
        if event.kind is ProgressKind.READY and self.console_url:
            self._report(Event(ProgressKind.PROCESS, "console", self.console_url))
            event = replace(event, details={**event.details, "console": self.console_url})
        self._report(event)

    def recent(self) -> list[tuple[int, Event]]:
        """Return the latest events, newest first, with their times in milliseconds since 1970 UTC."""
        return list(self._recent)


async def _start_console(port: int, bootstrap: str, events: RecentEvents) -> ConsoleServer | None:
    """Serve the console before the cluster starts, so that a port in use is reported at once.

    Without its packages, the cluster starts all the same. Raises `ConfigError` if the port is in use.
    """
    try:
        from odradek.console.cluster_reads import ActivityLine
        from odradek.console.console_server import ConsoleServer
        from odradek.console.console_settings import ConsoleSettings
    except ModuleNotFoundError as error:
        message = f"not served, because a package is missing ({error.name}): pip install 'odradek[console]'"
        events(Event(ProgressKind.NOTICE, "console", message))
        return None

    def activity() -> list[ActivityLine]:
        return [
            ActivityLine(time_ms=time_ms, subject=event.subject, message=event.message, good=event.good)
            for time_ms, event in events.recent()
        ]

    settings = ConsoleSettings(properties={"bootstrap.servers": bootstrap}, host=LOOPBACK, port=port)
    server = ConsoleServer(settings, activity=activity)
    await server.start()
    events.console_url = server.url
    return server


class _Stop:
    """Handles signals. The first stops the cluster in order, also during its start; the second kills every broker."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.asked = asyncio.Event()
        self._cluster = cluster
        self._starting: asyncio.Future[None] | None = None

    async def unless_asked(self, start: Coroutine[Any, Any, None]) -> None:
        """Await `start`, which a signal cancels, also one that came before."""
        if self.asked.is_set():
            start.close()
            raise asyncio.CancelledError
        self._starting = asyncio.ensure_future(start)
        await self._starting

    def __call__(self) -> None:
        if self.asked.is_set():
            self._cluster.brokers.kill_all()
        self.asked.set()
        if self._starting is not None:
            self._starting.cancel()


def json_report(event: Event) -> None:
    """Print an event as one JSON object on a line."""
    line = {"event": event.kind.value, "subject": event.subject, "message": event.message, "good": event.good}
    click.echo(json.dumps({**line, **event.details}))


def text_report(*, color: bool) -> Callable[[Event], None]:
    """Return a function that prints events as lines. The ready line is the same text with and without colour."""
    # The import is here because rich takes longer to import than everything else together.
    from rich.console import Console
    from rich.text import Text

    console = Console(no_color=not color, highlight=False, soft_wrap=True)

    def report(event: Event) -> None:
        if event.kind is ProgressKind.READY:
            console.print(Text(f"ready: {event.message}", style="bold green"))
            return
        style = "" if event.good else "yellow"
        console.print(Text.assemble((f"{event.subject}: ", "bold"), (event.message, style)))

    return report
