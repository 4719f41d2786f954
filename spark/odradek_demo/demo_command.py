"""The command `odradek demo`: runs a cluster and two Spark jobs over real flights, and checks the result.

It is registered in the entry point group `odradek.commands`. It prints a table, or one JSON object. The exit code is 0
if topic, archive and windows equal the CSV, 1 with an error message otherwise, and 2 for wrong usage. It always stops
what it has started, Spark first, then the cluster.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.markup import escape

from odradek.base.errors import OdradekError
from odradek.client.blocking.client import BlockingClient
from odradek_demo import check, flights, load
from odradek_demo.processes import Child, ChildEvent, check_java, cluster, spark_job
from odradek_demo.screen import CarrierRow, Screen, Step

TOPIC: Final = "departures"
WINDOWS: Final = (
    "--window=1 hour",
    "--column=from_json(string(value), 'dep_delay DOUBLE').dep_delay AS delay",
    "--group-by=string(key) AS carrier",
    "--aggregate=count(*) AS departures",
    "--aggregate=count(delay) AS departed",
    "--aggregate=avg(delay) AS mean_delay",
)
"""The result of the streaming job. The delay is null for a cancelled flight: `departures` counts it, `departed` not."""
_BUSIEST: Final = 10
_READY_SECONDS: Final = 120.0
_JOB_SECONDS: Final = 900.0

_HELP: Final = """Run the demonstration from start to finish and check its result.

It starts the cluster of manifests/examples/ (ZooKeeper and three brokers, each a process of this machine), sends the
336,776 departures from New York's airports in 2013 to the topic `departures` as JSON events, and runs two Spark jobs
over it: a streaming query that keeps departures and mean delay per carrier and hour, and a batch job that archives the
topic by date. Then it compares topic, archive and windows with the CSV that the events came from, shows the ten
busiest carriers, and stops everything. It takes one to three minutes. Ctrl-C stops it in order at any time.

It removes the data of an earlier demonstration in --data-dir when it starts, and leaves its own when it ends.

\b
Examples:
  odradek demo
  odradek demo --base-port 19092 --zookeeper-port 12181 --metrics-base-port 19404
  odradek demo --output json
"""

_PORT: Final = click.IntRange(1, 65_535)


class DemonstrationError(OdradekError):
    """The demonstration cannot start, because its data folder or the manifests are not usable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arguments:
    files: tuple[Path, ...]
    data: Path
    zookeeper_port: int
    base_port: int
    metrics_base_port: int
    zookeeper_jars: Path | None
    cores: int

    def for_cluster(self) -> list[str]:
        """The command line of `odradek up`."""
        jars = [] if self.zookeeper_jars is None else ["--zookeeper-jars", str(self.zookeeper_jars)]
        files = [part for path in self.files for part in ("-f", str(path))]
        return [
            *files,
            *("--data-dir", str(self.data / "cluster")),
            *("--zookeeper-port", str(self.zookeeper_port)),
            *("--base-port", str(self.base_port)),
            *("--metrics-base-port", str(self.metrics_base_port)),
            *jars,
        ]


@dataclass(slots=True, kw_only=True)
class _Summary:
    events: int = 0
    partitions: int = 0
    windows: int = 0
    archived: int = 0
    carriers: Sequence[CarrierRow] = ()
    differences: list[str] = field(default_factory=list)


@click.command(help=_HELP, context_settings={"max_content_width": 110})
@click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="Manifest, or folder of manifests, instead of manifests/examples/.",
)
@click.option(
    "--data-dir",
    "data",
    default=".odradek/demo",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Folder for all data; that of an earlier demonstration is removed.",
)
@click.option("--zookeeper-port", default=2181, show_default=True, type=_PORT, help="Port of ZooKeeper.")
@click.option(
    "--base-port",
    default=9092,
    show_default=True,
    type=_PORT,
    help="Port of broker 0; the other brokers use the next ports.",
)
@click.option(
    "--metrics-base-port",
    default=9404,
    show_default=True,
    type=_PORT,
    help="Port of /metrics of broker 0; the other brokers use the next ports.",
)
@click.option(
    "--zookeeper-jars",
    type=click.Path(path_type=Path),
    help="Folder with the jars of ZooKeeper; by default those in PySpark.",
)
@click.option(
    "--cores",
    default=2,
    show_default=True,
    type=click.IntRange(1, 64),
    help="Number of Spark tasks that run at a time.",
)
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Output format.")
def demo(*, output: str, **options: Any) -> None:
    """Run the command; `_HELP` is its help text."""
    screen = Screen(Console(quiet=output == "json"))
    began = time.monotonic()
    try:
        arguments = _Arguments(
            **{**options, "files": options["files"] or (_examples(),), "data": options["data"].absolute()}
        )
        check_java()
        with _terminable(), _alone(arguments.data):
            summary = _demonstrate(arguments, screen)
    except OdradekError as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        raise click.ClickException("interrupted; all processes were stopped") from None
    seconds = time.monotonic() - began
    if output == "json":
        click.echo(json.dumps(_as_json(summary, screen, seconds)))
    else:
        _show(summary, screen, arguments.data, seconds)
    if summary.differences:
        sys.exit(1)


def _examples() -> Path:
    """Return manifests/examples of the working directory, or of the source tree that contains this package."""
    places = [Path("manifests/examples"), Path(__file__).resolve().parents[2] / "manifests" / "examples"]
    for place in places:
        if place.is_dir():
            return place
    raise DemonstrationError("manifests/examples does not exist: run the command in a clone of the project, or use -f.")


@contextmanager
def _terminable() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C, so that child processes are stopped."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _alone(data: Path) -> Iterator[None]:
    """Lock and empty the data folder. Without the lock, a second demonstration would delete the data of the first."""
    data.parent.mkdir(parents=True, exist_ok=True)
    with data.with_name(f".{data.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemonstrationError(
                f"another demonstration is running in {data}: stop it, or use --data-dir."
            ) from None
        if data.exists():
            _check_ours(data)
            shutil.rmtree(data)
        data.mkdir()
        (data / _MARK).touch()
        yield


_MARK: Final = ".odradek-demo"


def _check_ours(data: Path) -> None:
    """Raise `DemonstrationError` if the folder was not created by a demonstration."""
    if any(data.iterdir()) and not (data / _MARK).exists():
        raise DemonstrationError(
            f"{data} was not created by a demonstration, so it is not removed: choose another --data-dir."
        )


def _demonstrate(arguments: _Arguments, screen: Screen) -> _Summary:
    data = arguments.data
    with screen.step("Read the flights") as step:
        folder = flights.data_folder()
        rows = flights.read_flights(folder)
        events, expected = flights.events(rows), flights.expected(rows)
        step.finish(f"{len(events):,} departures of {len(expected.by_carrier)} carriers")
    with cluster(arguments.for_cluster(), data / "logs" / "cluster.log") as brokers:
        with screen.step("Start ZooKeeper and the brokers") as step:
            bootstrap = _wait_until_ready(brokers, step)
        with BlockingClient(load.settings(bootstrap)) as client:
            summary = _Summary(events=len(events))
            with screen.step(f"Wait for topic {TOPIC}") as step:
                summary.partitions = load.wait_for_topic(client, TOPIC, timeout_seconds=_READY_SECONDS)
                step.finish(f"{summary.partitions} partitions, all replicas in sync")
            with screen.step("Send the events") as step:
                _load(client, events, step)
            source = ["--bootstrap-servers", bootstrap, "--topic", TOPIC]
            windows = [*source, "--output", str(data / "windows"), "--checkpoint", str(data / "windows-checkpoint")]
            _run_job("rollup", [*windows, *WINDOWS], arguments, screen)
            _run_job("load", [*source, "--output", str(data / "archive")], arguments, screen)
            with screen.step("Compare with the CSV") as step:
                in_topic = load.count_records(client, TOPIC)
                _check(summary, data, (events, expected, flights.read_airlines(folder)), in_topic)
                step.finish("all equal" if not summary.differences else f"{len(summary.differences)} differences")
        with screen.step("Stop the brokers and ZooKeeper"):
            brokers.stop()
    return summary


def _wait_until_ready(brokers: Child, step: Step) -> str:
    ready = brokers.until(
        "ready",
        lambda event: step.show(f"{event.get('subject', '')}: {event.get('message', '')}"[:60]),
        timeout_seconds=_READY_SECONDS,
        silence_seconds=_READY_SECONDS,
    )
    bootstrap = str(ready["bootstrap"])
    step.finish(f"reachable at {bootstrap}")
    return bootstrap


def _load(client: BlockingClient, events: Sequence[flights.Event], step: Step) -> None:
    total = len(events)
    acknowledged = load.load(
        client, TOPIC, events, lambda done: step.show(f"{done:,} of {total:,}", done=done, of=total)
    )
    step.finish(f"{acknowledged:,} acknowledged by all in-sync replicas", records=acknowledged)


_JOBS: Final = {
    "rollup": "pyspark_odradek.pipelines.rollup",
    "load": "pyspark_odradek.pipelines.load",
}
"""Modules of the jobs. They are not imported here, because each runs in its own Spark driver."""
_JOB_TITLES: Final = {
    "rollup": "Stream: departures and delay per carrier and hour",
    "load": "Batch: load the topic into files by date",
}


def _run_job(name: str, job_arguments: Sequence[str], arguments: _Arguments, screen: Screen) -> None:
    found = find_spec(_JOBS[name])
    assert found is not None and found.origin is not None
    script = Path(found.origin)
    log = arguments.data / "logs" / f"{name}.log"
    with (
        screen.step(_JOB_TITLES[name]) as step,
        spark_job(script, job_arguments, log, cores=arguments.cores, scratch=arguments.data / "scratch") as job,
    ):
        step.show("Spark is starting")
        result = job.until(
            "result",
            lambda event: _show_job(event, step),
            timeout_seconds=_JOB_SECONDS,
            silence_seconds=_JOB_SECONDS,
        )
        job.wait()
        late = f", {result['dropped_late']:,} too late" if result.get("dropped_late") else ""
        step.finish(f"{result['rows']:,} records{late}", records=result["rows"])


def _show_job(event: ChildEvent, step: Step) -> None:
    match event.get("event"):
        case "progress":
            step.show(f"{event['done']} of {event['of']} tasks", done=event["done"], of=event["of"])
        case "upsert":
            step.show(f"micro-batch {event['number']}: {event['windows']:,} windows")
        case "planned":
            step.show(f"{event['records']:,} records to load")


def _check(
    summary: _Summary,
    data: Path,
    truth: tuple[Sequence[flights.Event], flights.Expected, Mapping[str, str]],
    in_topic: int,
) -> None:
    """Read the results into `summary` and list their differences from the CSV."""
    events, expected, airlines = truth
    if in_topic != expected.flights:
        summary.differences.append(f"topic {TOPIC} has {in_topic:,} records instead of {expected.flights:,}")
    windows = check.read_windows(data / "windows")
    archive = check.read_archive(data / "archive")
    summary.windows, summary.archived = len(windows), archive.num_rows
    summary.differences += check.compare_windows(windows, expected)
    summary.differences += check.compare_archive(archive, list(events), expected)
    archived = Counter(key.decode() for key in archive.column("key").to_pylist())
    summary.carriers = _busiest(windows, archived, airlines)


def _busiest(
    windows: Mapping[flights.Window, check.WindowRow], archived: Mapping[str, int], airlines: Mapping[str, str]
) -> list[CarrierRow]:
    """Return the rows of the final table, from the output of the jobs."""
    by_carrier: dict[str, list[check.WindowRow]] = {}
    for (_, carrier), row in windows.items():
        by_carrier.setdefault(carrier, []).append(row)
    table = []
    for carrier, hours in by_carrier.items():
        departed = sum(row.departed for row in hours)
        delay = sum(row.departed * (row.mean_delay or 0.0) for row in hours)
        table.append(
            CarrierRow(
                carrier,
                airlines.get(carrier, ""),
                sum(row.departures for row in hours),
                departed,
                delay / departed if departed else 0.0,
                archived.get(carrier, 0),
            )
        )
    return sorted(table, key=lambda row: -row.departures)[:_BUSIEST]


def _show(summary: _Summary, screen: Screen, data: Path, seconds: float) -> None:
    screen.carriers(summary.carriers)
    if summary.differences:
        for difference in summary.differences:
            screen.say(f"[red]✗[/] {escape(difference)}")
        screen.say(f"The result differs from the CSV. Data and logs are in {escape(str(data))}")
        return
    screen.say(
        f"{summary.events:,} events in the topic, {summary.archived:,} in the archive and {summary.windows:,} windows "
        f"of carrier and hour: equal to the CSV. All in {seconds:.0f} s. Data and logs are in {escape(str(data))}"
    )


def _as_json(summary: _Summary, screen: Screen, seconds: float) -> dict[str, object]:
    return {
        "equal": not summary.differences,
        "differences": summary.differences,
        "events": summary.events,
        "partitions": summary.partitions,
        "archived": summary.archived,
        "windows": summary.windows,
        "seconds": round(seconds, 3),
        "steps": [
            {"name": step.name, "seconds": round(step.seconds, 3), "records": step.records} for step in screen.steps
        ],
        "carriers": [
            {name: getattr(row, name) for name in CarrierRow.__dataclass_fields__} for row in summary.carriers
        ],
    }
