"""Java producer throughput beside Apache Kafka 3.9.1, in one run on one machine.

    make bench                    # or: .venv/bin/python broker/tests/bench/throughput.py --help

Each system in turn runs one broker with one replica, then three brokers with three replicas; the same
ProducerPerformance of Apache Kafka writes 100-byte and 1000-byte records to a topic of six partitions. The systems
take turns, run by run, so that a machine that slows down slows both. The medians, the ratio and the CPU seconds of the
brokers go into `docs/benchmarks.md`.
"""

from __future__ import annotations

import datetime
import platform
import re
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress

from odradek.client.admin import NewTopic
from odradek.client.blocking import BlockingClient
from odradek.testing.apache import ApacheBroker, jars, run_tool
from odradek.testing.cluster import RunningCluster
from odradek_operator.embedded.ports import free_ports
from odradek_operator.embedded.zookeeper import ZooKeeperServer

ROOT = Path(__file__).resolve().parents[3]
REPORT = ROOT / "docs" / "benchmarks.md"
KAFKA_VERSION = "3.9.1"
PARTITIONS = 6
BATCH_BYTES = 128 * 1024
RESULT = re.compile(r"([\d.]+) records/sec \(([\d.]+) MB/sec\).*?([\d.]+) ms 50th.*?([\d.]+) ms 99th")
TICKS_PER_SECOND = 100

console = Console()


@dataclass(frozen=True)
class Scenario:
    """What is written where."""

    brokers: int
    record_bytes: int
    records: int

    @property
    def acks(self) -> str:
        return "1" if self.brokers == 1 else "all"


@dataclass(frozen=True)
class Run:
    """What one run of the producer came to."""

    records_per_second: float
    megabytes_per_second: float
    p50_ms: float
    p99_ms: float
    broker_cpu_seconds: float


@dataclass(frozen=True)
class System:
    """A running cluster."""

    bootstrap: str
    pids: Sequence[int]


@contextmanager
def apache(brokers: int, folder: Path) -> Iterator[System]:
    """Apache Kafka's brokers and a ZooKeeper."""
    with tempfile.TemporaryDirectory(prefix="bench-apache-") as name, ExitStack() as running:
        zookeeper = ZooKeeperServer(Path(name) / "zookeeper", free_ports(1)[0], synchronous=False)
        running.callback(zookeeper.stop)
        zookeeper.start()
        zookeeper.wait_until_ready()
        heap = "1g" if brokers == 1 else "512m"
        properties = {"offsets.topic.replication.factor": str(brokers)}
        started: list[ApacheBroker] = []
        for number in range(brokers):
            broker = ApacheBroker(
                folder,
                Path(name) / str(number),
                broker_id=number,
                zookeeper=zookeeper.connect,
                properties=properties,
                heap=heap,
            )
            running.callback(broker.stop)
            broker.start()
            started.append(broker)
        yield System(",".join(f"127.0.0.1:{broker.port}" for broker in started), [broker.pid for broker in started])


@contextmanager
def odradek(brokers: int) -> Iterator[System]:
    """The embedded cluster."""
    with tempfile.TemporaryDirectory(prefix="bench-odradek-") as name:
        cluster = RunningCluster(Path(name), brokers=brokers)
        cluster.start()
        try:
            yield System(cluster.bootstrap, list(cluster.pids.values()))
        finally:
            cluster.close()


def cpu_seconds(pids: Sequence[int]) -> float:
    """User and system time that the processes have used so far."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS_PER_SECOND


def produce(folder: Path, system: System, scenario: Scenario, topic: str) -> Run:
    """One run of ProducerPerformance into a new topic."""
    with BlockingClient(system.bootstrap) as client:
        client.admin.create_topics([NewTopic(name=topic, partitions=PARTITIONS, replication_factor=scenario.brokers)])
    before = cpu_seconds(system.pids)
    told = run_tool(
        folder,
        "org.apache.kafka.tools.ProducerPerformance",
        [
            *("--topic", topic, "--num-records", str(scenario.records), "--record-size", str(scenario.record_bytes)),
            *("--throughput", "-1", "--producer-props", f"bootstrap.servers={system.bootstrap}"),
            *(f"acks={scenario.acks}", "linger.ms=5", f"batch.size={BATCH_BYTES}", "buffer.memory=67108864"),
        ],
        timeout_seconds=600,
    )
    found = RESULT.findall(told)
    if not found:
        raise click.ClickException(f"ProducerPerformance printed no result: {told[-500:]}")
    rate, megabytes, p50, p99 = map(float, found[-1])
    return Run(rate, megabytes, p50, p99, cpu_seconds(system.pids) - before)


def median(runs: Sequence[Run]) -> Run:
    """The median of each figure."""
    columns = zip(*(vars(run).values() for run in runs), strict=True)
    return Run(*map(statistics.median, columns))


def table(results: dict[Scenario, dict[str, list[Run]]]) -> str:
    """The results as Markdown."""
    lines = [
        "| replicas, acks | record | Odradek | Apache Kafka | ratio | p99, ours / theirs | CPU, ours / theirs |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for scenario, systems in results.items():
        ours, theirs = median(systems["odradek"]), median(systems["apache"])
        lines.append(
            f"| {scenario.brokers}, {scenario.acks} | {scenario.record_bytes} B "
            f"| {ours.records_per_second / 1000:.0f} k/s ({ours.megabytes_per_second:.0f} MB/s) "
            f"| {theirs.records_per_second / 1000:.0f} k/s ({theirs.megabytes_per_second:.0f} MB/s) "
            f"| **{ours.records_per_second / theirs.records_per_second:.2f}** "
            f"| {ours.p99_ms:.0f} / {theirs.p99_ms:.0f} ms "
            f"| {ours.broker_cpu_seconds:.1f} / {theirs.broker_cpu_seconds:.1f} s |"
        )
    return "\n".join(lines)


def report(results: dict[Scenario, dict[str, list[Run]]], runs: int) -> str:
    """The whole document."""
    day = datetime.datetime.now(tz=datetime.UTC).date()
    return f"""# Benchmarks

Made by `make bench` on {day}: {platform.machine()}, clients and brokers on the same cores, Python
{platform.python_version()}. Apache Kafka {KAFKA_VERSION} in ZooKeeper mode (heap 1 GiB, of three 512 MiB each) and
Odradek take turns; each figure is the median of {runs} runs after one that is not counted. Absolute figures vary from
machine to machine and from hour to hour: the ratios are what to hold.

## Java producer

`org.apache.kafka.tools.ProducerPerformance` of Apache Kafka {KAFKA_VERSION}, {PARTITIONS} partitions, `linger.ms=5`,
`batch.size={BATCH_BYTES}`, no compression, as fast as it goes.

{table(results)}
"""


@click.command(help=__doc__)
@click.option("--runs", default=3, show_default=True, help="Counted runs of each scenario and system.")
@click.option("--scale", default=1.0, show_default=True, help="Multiplies the number of records.")
@click.option("--write/--no-write", default=True, show_default=True, help="Write docs/benchmarks.md.")
def main(runs: int, scale: float, write: bool) -> None:
    folder = jars(KAFKA_VERSION, ROOT / ".interop")
    results: dict[Scenario, dict[str, list[Run]]] = {}
    with Progress(console=console) as progress:
        for brokers in (1, 3):
            factor = scale if brokers == 1 else scale / 2
            scenarios = [
                Scenario(brokers, 100, int(2_000_000 * factor)),
                Scenario(brokers, 1000, int(500_000 * factor)),
            ]
            task = progress.add_task(f"{brokers} brokers", total=len(scenarios) * 2 * (runs + 1))
            with apache(brokers, folder) as theirs, odradek(brokers) as ours:
                for scenario in scenarios:
                    found = results.setdefault(scenario, {"odradek": [], "apache": []})
                    for number in range(runs + 1):
                        order = [("odradek", ours), ("apache", theirs)]
                        for name, system in order if number % 2 else order[::-1]:
                            run = produce(folder, system, scenario, f"bench-{scenario.record_bytes}-{number}")
                            progress.advance(task)
                            if number:
                                found[name].append(run)
    click.echo(table(results))
    if write:
        REPORT.write_text(report(results, runs), encoding="utf-8")
        console.print(f"written to {REPORT.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
