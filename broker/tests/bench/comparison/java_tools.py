"""Runs Apache Kafka's load tools and parses their results.

Both systems are tested with the tools of version 3.9.1 (org.apache.kafka.tools).
"""

from __future__ import annotations

import random
import re
import string
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from odradek_testkit.interop.apache import run_tool

_PRODUCED: Final = re.compile(
    r"([\d.]+) records/sec \(([\d.]+) MB/sec\).*?"
    r"([\d.]+) ms 50th, [\d.]+ ms 95th, ([\d.]+) ms 99th, ([\d.]+) ms 99\.9th"
)
_END_TO_END: Final = re.compile(r"50th = (\d+), 99th = (\d+), 99\.9th = (\d+)")
_FETCHED_MEGABYTES, _FETCHED_RECORDS = 8, 9
"""Columns of ConsumerPerformance with the rates during fetching, without the time to join the group."""


HEAP: Final = "512m"
"""Heap size as in the scripts of these tools."""

PAYLOADS: Final = 1_000
"""Number of different records that ProducerPerformance sends."""


class OutputError(RuntimeError):
    """The output of a tool has no result."""


def producer_figures(text: str) -> dict[str, float]:
    """Parse the last summary of ProducerPerformance; earlier ones are for parts of the run."""
    found = _PRODUCED.findall(text)
    if not found:
        raise OutputError(f"ProducerPerformance printed no result: {text[-500:]}")
    names = ("records_per_s", "megabytes_per_s", "p50_ms", "p99_ms", "p999_ms")
    return dict(zip(names, map(float, found[-1]), strict=True))


def consumer_figures(text: str) -> dict[str, float]:
    """Parse the result of ConsumerPerformance."""
    lines = [line.split(", ") for line in text.splitlines() if line.count(", ") == _FETCHED_RECORDS]
    if not lines:
        raise OutputError(f"ConsumerPerformance printed no result: {text[-500:]}")
    line = lines[-1]
    return {"records_per_s": float(line[_FETCHED_RECORDS]), "megabytes_per_s": float(line[_FETCHED_MEGABYTES])}


def end_to_end_figures(text: str) -> dict[str, float]:
    """Parse the percentiles of EndToEndLatency in whole milliseconds."""
    found = _END_TO_END.search(text)
    if found is None:
        raise OutputError(f"EndToEndLatency printed no result: {text[-500:]}")
    return dict(zip(("p50_ms", "p99_ms", "p999_ms"), map(float, found.groups()), strict=True))


def produce(
    jars: Path, topic: str, settings: Mapping[str, str], *, records: int, record_bytes: int, rate: int, timeout: float
) -> dict[str, float]:
    """Run ProducerPerformance; `rate` in records per second, -1 for no limit.

    The records come from a file: otherwise the tool generates every byte of every record, which at 1000 B would
    dominate the measurement.
    """
    with TemporaryDirectory() as folder:
        payloads = Path(folder) / "payloads"
        payloads.write_text(payload_lines(record_bytes), encoding="ascii")
        arguments = ["--topic", topic, "--num-records", str(records), "--payload-file", str(payloads)]
        arguments += ["--throughput", str(rate), "--producer-props"]
        arguments += (f"{key}={value}" for key, value in settings.items())
        main = "org.apache.kafka.tools.ProducerPerformance"
        return producer_figures(run_tool(jars, main, arguments, timeout_seconds=timeout, heap=HEAP))


def payload_lines(record_bytes: int, count: int = PAYLOADS) -> str:
    """Return records for a payload file, one per line, the same each time."""
    letters = string.ascii_letters + string.digits
    chance = random.Random(record_bytes)
    return "\n".join("".join(chance.choices(letters, k=record_bytes)) for _ in range(count))


def consume(
    jars: Path,
    bootstrap: str,
    topic: str,
    *,
    group: str,
    records: int,
    timeout: float,
    security: Mapping[str, str] | None = None,
) -> dict[str, float]:
    """Run ConsumerPerformance from the beginning of a topic. `security`: properties for TLS."""
    arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--group", group, "--messages", str(records)]
    arguments += ["--hide-header", "--timeout", "60000"]
    main = "org.apache.kafka.tools.ConsumerPerformance"
    with TemporaryDirectory() as folder:
        config = Path(folder) / "consumer.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in (security or {}).items()), encoding="ascii")
        arguments += ["--consumer.config", str(config)]
        return consumer_figures(run_tool(jars, main, arguments, timeout_seconds=timeout, heap=HEAP))


def end_to_end(
    jars: Path, bootstrap: str, topic: str, *, records: int, acks: str, record_bytes: int, timeout: float
) -> dict[str, float]:
    """Run EndToEndLatency, which sends one record at a time and waits until it is consumed."""
    arguments = [bootstrap, topic, str(records), acks, str(record_bytes)]
    return end_to_end_figures(
        run_tool(jars, "org.apache.kafka.tools.EndToEndLatency", arguments, timeout_seconds=timeout)
    )
