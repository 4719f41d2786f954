"""`odradek perf`: measures throughput and latency. `loads` runs the measurements."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from odradek.cli.shared import (
    client_settings,
    connection_options,
    echo_json,
    output_option,
    property_option,
    reporting_errors,
    run,
)

if TYPE_CHECKING:
    from odradek.cli.perf.meter import Meter
    from odradek.client.settings import ClientSettings

_F = TypeVar("_F", bound=Callable[..., Any])


@click.group()
def perf() -> None:
    """Measure the throughput and the latency of a cluster.

    The client is part of what is measured: it is written in Python. Several commands at the same time give a cluster
    more load.

    \b
    Example:
      odradek perf produce load --records 10000 --size 100
      odradek perf consume load --records 10000
      odradek perf latency load --records 100
    """


def _size_option(default: int) -> Callable[[_F], _F]:
    return click.option(
        "--size",
        "size_bytes",
        type=click.IntRange(0),
        default=default,
        show_default=True,
        metavar="BYTES",
        help="Size of each value.",
    )


@perf.command()
@click.argument("topic")
@click.option("--records", type=click.IntRange(1), default=100_000, show_default=True, help="Number of records.")
@_size_option(1000)
@click.option(
    "--throughput", "rate", type=click.FloatRange(0, min_open=True), help="Limit in records per second. Default: none."
)
@property_option
@connection_options
@output_option
def produce(
    *,
    topic: str,
    records: int,
    size_bytes: int,
    rate: float | None,
    properties: Mapping[str, str],
    bootstrap: str,
    as_json: bool,
) -> None:
    """Send records to TOPIC, and measure the throughput and the time until records are acknowledged.

    Without --throughput, records are sent in groups as fast as possible, so that the latency includes the time in the
    buffer of the producer. All values are the same random bytes.

    \b
    Example:
      odradek perf produce load --records 10000 --size 100
      odradek perf produce load --records 200 --throughput 1000 -X acks=1 -X linger.ms=0 --output json
    """
    from odradek.cli.perf import loads

    settings = _settings(bootstrap, properties, **{"linger.ms": 5})
    payload = _random_bytes(size_bytes)
    work = loads.produce(settings, topic, records=records, payload=payload, rate=rate, report=_report)
    _show(topic, work, as_json=as_json)


@perf.command()
@click.argument("topic")
@click.option("--records", type=click.IntRange(1), default=100_000, show_default=True, help="Number of records.")
@click.option("-g", "--group", help="Read as a member of this group. Default: read all partitions without a group.")
@click.option(
    "--timeout",
    "idle_ms",
    type=click.IntRange(1),
    default=10_000,
    show_default=True,
    metavar="MS",
    help="Stop if no record arrives for so long.",
)
@property_option
@connection_options
@output_option
def consume(
    *,
    topic: str,
    records: int,
    group: str | None,
    idle_ms: int,
    properties: Mapping[str, str],
    bootstrap: str,
    as_json: bool,
) -> None:
    """Read the records of TOPIC from the beginning, and measure the throughput.

    With --group, partitions with committed offsets are read from there. No offsets are committed.

    The client reads whole batches as the Spark connector does. It does not decompress them and creates no object for a
    record. So the number of records may exceed --records by those of a fetch. The exit code is 1 if there are too few.

    \b
    Example:
      odradek perf consume load --records 10000
      odradek perf consume load --records 10000 --group load-test --output json
    """
    from odradek.cli.perf import loads

    more = {"auto.offset.reset": "earliest", "enable.auto.commit": "false"} | (
        {} if group is None else {"group.id": group}
    )
    settings = _settings(bootstrap, properties, **more)
    work = loads.consume(settings, topic, records=records, idle_ms=idle_ms, report=_report)
    meter = _show(topic, work, as_json=as_json)
    if meter.records < records:
        click.echo(f"Only {meter.records} of {records} records arrived within {idle_ms} ms of each other.", err=True)
        sys.exit(1)


@perf.command()
@click.argument("topic")
@click.option("--records", type=click.IntRange(1), default=1000, show_default=True, help="Number of records.")
@_size_option(100)
@click.option(
    "--timeout",
    "timeout_ms",
    type=click.IntRange(1),
    default=60_000,
    show_default=True,
    metavar="MS",
    help="Time in which each record must arrive.",
)
@property_option
@connection_options
@output_option
def latency(
    *,
    topic: str,
    records: int,
    size_bytes: int,
    timeout_ms: int,
    properties: Mapping[str, str],
    bootstrap: str,
    as_json: bool,
) -> None:
    """Send one record after the other to TOPIC, and measure the time until a consumer has it.

    Each value begins with its number, so it has 16 bytes more than --size. Other records of the topic are ignored.

    \b
    Example:
      odradek perf latency load --records 100
      odradek perf latency load --records 100 --size 1000 -X acks=1 --output json
    """
    from odradek.cli.perf import loads

    consumer = _settings(bootstrap, properties, **{"fetch.min.bytes": 1, "auto.offset.reset": "latest"})
    work = loads.round_trips(
        _settings(bootstrap, properties, **{"linger.ms": 0}),
        consumer,
        topic,
        records=records,
        payload=_random_bytes(size_bytes),
        timeout_ms=timeout_ms,
        report=_report,
    )
    _show(topic, work, as_json=as_json)


def _settings(bootstrap: str, properties: Mapping[str, str], **more: object) -> ClientSettings:
    with reporting_errors():
        return client_settings(bootstrap, properties, **more)


def _random_bytes(size: int) -> bytes:
    from random import Random

    # The same value in every run, so that runs can be compared.
    return Random(0).randbytes(size)


def _report(meter: Meter) -> None:
    """Print the progress to standard error, at most once per second."""
    line = meter.progress(time.monotonic())
    if line is not None:
        click.echo(line, err=True)


def _show(topic: str, work: Coroutine[Any, Any, Meter], *, as_json: bool) -> Meter:
    """Run a measurement and print its summary."""
    meter = run(work)
    if as_json:
        echo_json({"topic": topic, **meter.value()})
    else:
        click.echo(meter.text())
    return meter
