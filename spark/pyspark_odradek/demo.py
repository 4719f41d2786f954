"""`odradek demo`: the whole thing does its job once, before one's eyes. Registered in the group `odradek.commands`.

Enters: a command line. Leaves: a table, or one JSON object, and an exit code: 0 only when topic, archive and windows
equal the CSV; 1 with a sentence that says why not; 2 for wrong usage. What it starts it stops, in order, whatever
happens: Spark first, then the cluster.
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
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.markup import escape

from odradek.base.errors import OdradekError
from odradek.client.blocking.client import BlockingClient
from pyspark_odradek import pipelines
from pyspark_odradek.demonstration import check, flights, load
from pyspark_odradek.demonstration.processes import Child, ChildEvent, check_java, cluster, spark_job
from pyspark_odradek.demonstration.screen import CarrierRow, Screen, Step

TOPIC: Final = "departures"
_BUSIEST: Final = 10
_READY_SECONDS: Final = 120.0
_JOB_SECONDS: Final = 900.0

_HELP: Final = """Run the demonstration from start to finish and check its result.

It starts the cluster of manifests/examples/ (ZooKeeper and three brokers, each a process of this machine), sends the
336,776 departures from New York's airports in 2013 to the topic `departures` as JSON events, and runs two Spark jobs
over it: a streaming query that keeps departures and mean delay per carrier and hour, and a batch job that archives the
topic by date. Then it compares topic, archive and windows with the CSV that the events came from, shows the ten
busiest carriers, and stops everything. It takes one to three minutes; Ctrl-C stops it in order at any time.

Data of an earlier demonstration in --data-dir is removed at the start, that of this one is left to look at.

\b
Examples:
  odradek demo
  odradek demo --base-port 19092 --zookeeper-port 12181 --metrics-base-port 19404
  odradek demo --output json
"""

_PORT: Final = click.IntRange(1, 65_535)


class DemonstrationError(OdradekError):
    """The result is not what the CSV says, or another demonstration is running."""


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
class _Outcome:
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
    help="All data; what an earlier demonstration left there is removed.",
)
@click.option("--zookeeper-port", default=2181, show_default=True, type=_PORT, help="Port of ZooKeeper.")
@click.option("--base-port", default=9092, show_default=True, type=_PORT, help="Port of broker 0; the others follow.")
@click.option(
    "--metrics-base-port", default=9404, show_default=True, type=_PORT, help="Port of broker 0's /metrics; likewise."
)
@click.option("--zookeeper-jars", type=click.Path(path_type=Path), help="Folder of ZooKeeper's jars; else PySpark's.")
@click.option("--cores", default=2, show_default=True, type=click.IntRange(1, 64), help="Tasks of Spark at a time.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Form of it.")
def demo(*, output: str, **options: Any) -> None:
    """The command itself; `_HELP` is its help."""
    screen = Screen(Console(quiet=output == "json"))
    began = time.monotonic()
    try:
        arguments = _Arguments(
            **{**options, "files": options["files"] or (_examples(),), "data": options["data"].absolute()}
        )
        check_java()
        with _terminable(), _alone(arguments.data):
            outcome = _demonstrate(arguments, screen)
    except OdradekError as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        raise click.ClickException("stopped before the end; everything that was started has been stopped") from None
    seconds = time.monotonic() - began
    if output == "json":
        click.echo(json.dumps(_as_json(outcome, screen, seconds)))
    else:
        _show(outcome, screen, arguments.data, seconds)
    if outcome.differences:
        sys.exit(1)


def _examples() -> Path:
    """manifests/examples of the directory that one is in, else of the source tree that this is installed from."""
    places = [Path("manifests/examples"), Path(__file__).resolve().parents[2] / "manifests" / "examples"]
    for place in places:
        if place.is_dir():
            return place
    raise DemonstrationError("manifests/examples is not here: run it in a clone of the project, or name one with -f.")


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end it as Ctrl-C does, so that children are stopped then too."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _alone(data: Path) -> Iterator[None]:
    """Hold the data folder alone, emptied; a second demonstration would delete the first one's data under it."""
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
    """Never remove a folder that no demonstration made."""
    if any(data.iterdir()) and not (data / _MARK).exists():
        raise DemonstrationError(
            f"{data} holds something else than an earlier demonstration: choose another --data-dir."
        )


def _demonstrate(arguments: _Arguments, screen: Screen) -> _Outcome:
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
            outcome = _Outcome(events=len(events))
            with screen.step(f"Wait for topic {TOPIC}") as step:
                outcome.partitions = load.wait_for_topic(client, TOPIC, timeout_seconds=_READY_SECONDS)
                step.finish(f"{outcome.partitions} partitions, all replicas in sync")
            with screen.step("Send the events") as step:
                _load(client, events, step)
            source = ["--bootstrap-servers", bootstrap, "--topic", TOPIC]
            windows = [*source, "--output", str(data / "windows"), "--checkpoint", str(data / "windows-checkpoint")]
            _run_job("departures_windows", windows, arguments, screen)
            _run_job("archive", [*source, "--output", str(data / "archive")], arguments, screen)
            with screen.step("Compare with the CSV") as step:
                in_topic = load.count_records(client, TOPIC)
                _check(outcome, data, (events, expected, flights.read_airlines(folder)), in_topic)
                step.finish("all equal" if not outcome.differences else f"{len(outcome.differences)} differences")
        with screen.step("Stop the brokers and ZooKeeper"):
            brokers.stop()
    return outcome


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


_JOB_TITLES: Final = {
    "departures_windows": "Stream: departures and delay per carrier and hour",
    "archive": "Batch: archive the topic by date",
}


def _run_job(name: str, job_arguments: Sequence[str], arguments: _Arguments, screen: Screen) -> None:
    script = Path(pipelines.__file__).with_name(f"{name}.py")
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
        case "batch":
            step.show(f"micro-batch {event['number']}: {event['windows']:,} windows")
        case "planned":
            step.show(f"{event['records']:,} records to archive")


def _check(
    outcome: _Outcome,
    data: Path,
    truth: tuple[Sequence[flights.Event], flights.Expected, Mapping[str, str]],
    in_topic: int,
) -> None:
    """Fill the outcome with what was found, and what of it is wrong."""
    events, expected, airlines = truth
    if in_topic != expected.flights:
        outcome.differences.append(f"topic {TOPIC}: it holds {in_topic:,} records, not {expected.flights:,}")
    windows = check.read_windows(data / "windows")
    archive = check.read_archive(data / "archive")
    outcome.windows, outcome.archived = len(windows), archive.num_rows
    outcome.differences += check.compare_windows(windows, expected)
    outcome.differences += check.compare_archive(archive, list(events), expected)
    archived = Counter(key.decode() for key in archive.column("key").to_pylist())
    outcome.carriers = _busiest(windows, archived, airlines)


def _busiest(
    windows: Mapping[flights.Window, check.WindowRow], archived: Mapping[str, int], airlines: Mapping[str, str]
) -> list[CarrierRow]:
    """The table, from what the pipelines wrote."""
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


def _show(outcome: _Outcome, screen: Screen, data: Path, seconds: float) -> None:
    screen.carriers(outcome.carriers)
    if outcome.differences:
        for difference in outcome.differences:
            screen.say(f"[red]✗[/] {escape(difference)}")
        screen.say(f"The result differs from the CSV. Data and logs are in {escape(str(data))}")
        return
    screen.say(
        f"{outcome.events:,} events in the topic, {outcome.archived:,} in the archive and {outcome.windows:,} windows "
        f"of carrier and hour: equal to the CSV. All in {seconds:.0f} s. Data and logs are in {escape(str(data))}"
    )


def _as_json(outcome: _Outcome, screen: Screen, seconds: float) -> dict[str, object]:
    return {
        "equal": not outcome.differences,
        "differences": outcome.differences,
        "events": outcome.events,
        "partitions": outcome.partitions,
        "archived": outcome.archived,
        "windows": outcome.windows,
        "seconds": round(seconds, 3),
        "steps": [
            {"name": step.name, "seconds": round(step.seconds, 3), "records": step.records} for step in screen.steps
        ],
        "carriers": [
            {name: getattr(row, name) for name in CarrierRow.__dataclass_fields__} for row in outcome.carriers
        ],
    }
