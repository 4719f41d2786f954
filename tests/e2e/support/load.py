"""A load that runs beside a test and reports afterwards whether records were lost, duplicated or reordered.

Needs addresses that this machine can reach (node ports, for example) and an existing topic. The result is a `Verdict`.
Used by tests that restart, kill and scale. Invariant: the processes of a load never outlive its `with` block.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.ledger import Report, Seen, Stream, Verdict, Written, judge
from support.waiting import eventually, scaled

_E2E: Final = Path(__file__).resolve().parents[1]
_END_SECONDS: Final = 400.0
_TAIL: Final = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a load.

    The pauses are the longest times without an acknowledgement and without a record, in seconds.
    """

    verdict: Verdict
    longest_produce_pause: float
    longest_consume_pause: float


class _Child:
    """One process of a load."""

    def __init__(self, folder: Path, what: str, name: str, arguments: list[str]) -> None:
        self.name: Final = name
        self._report: Final = folder / f"{name}.json"
        self._log: Final = folder / f"{name}.log"
        # An earlier load in this folder left them, and its count would hide that this one makes no progress.
        for path in (self._report, self._report.with_suffix(".count")):
            path.unlink(missing_ok=True)
        command = [sys.executable, "-m", "support.load_child", what, "--name", name, "--report", str(self._report)]
        environment = {**os.environ, "PYTHONPATH": str(_E2E)}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, *arguments], cwd=_E2E, env=environment, stdout=log, stderr=subprocess.STDOUT
            )

    def running(self) -> bool:
        return self._process.poll() is None

    def count(self) -> int:
        """The number of records acknowledged or read so far. It may be a quarter of a second old."""
        try:
            return int(self._report.with_suffix(".count").read_text(encoding="ascii"))
        except FileNotFoundError:
            return 0

    def end(self) -> Report:
        """Stop the process and return its report.

        Raises `AssertionError` with the output of the process if it wrote no report.
        """
        self._process.terminate()
        try:
            self._process.wait(scaled(_END_SECONDS))
        finally:
            self.kill()
        assert self._process.returncode == 0, f"{self.name} ended with {self._process.returncode}:\n{self.output()}"
        return Report.parse(json.loads(self._report.read_text(encoding="utf-8")))

    def kill(self) -> None:
        if self.running():
            self._process.kill()
            self._process.wait()

    def output(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-_TAIL:]


class Load:
    """Producers and one consumer of a topic that nobody else writes to."""

    def __init__(self, producers: list[_Child], consumer: _Child) -> None:
        self._producers: Final = producers
        self._consumer: Final = consumer

    def check(self) -> None:
        """Raise `AssertionError` if a process of the load has ended early."""
        for child in (*self._producers, self._consumer):
            assert child.running(), f"{child.name} has ended:\n{child.output()}"

    def acknowledged(self) -> int:
        """The number of records that are acknowledged so far, of all producers."""
        return sum(child.count() for child in self._producers)

    def seen(self) -> int:
        """The number of records that the consumer has read so far."""
        return self._consumer.count()

    def await_more(self, count: int = 100) -> None:
        """Wait until `count` more records are acknowledged and read, which shows that the load makes progress."""
        acknowledged, seen = self.acknowledged() + count, self.seen() + count
        eventually(
            lambda: (self.acknowledged(), self.seen()),
            lambda now: now[0] >= acknowledged and now[1] >= seen,
            what=f"{count} more records under load",
        )
        self.check()

    def finish(self) -> Outcome:
        """Stop the producers, let the consumer read to the end, and return the result."""
        self.check()
        written: dict[Stream, Written] = {}
        produce_pause = 0.0
        for child in self._producers:
            report = child.end()
            produce_pause = max(produce_pause, report.longest_pause)
            written |= {stream: entry for stream, entry in report.streams.items() if isinstance(entry, Written)}
        report = self._consumer.end()
        seen = {stream: entry for stream, entry in report.streams.items() if isinstance(entry, Seen)}
        return Outcome(
            verdict=judge(written, seen, report.count),
            longest_produce_pause=produce_pause,
            longest_consume_pause=report.longest_pause,
        )

    def kill(self) -> None:
        """Kill all processes."""
        for child in (*self._producers, self._consumer):
            child.kill()


@contextmanager
def running(
    bootstrap: str,
    topic: str,
    *,
    partitions: int,
    folder: Path,
    producers: int = 2,
    rate: float = 200.0,
    size: int = 200,
    login: Mapping[str, str] | None = None,
) -> Iterator[Load]:
    """Run a load on a topic for the duration of the block.

    Each producer sends `rate` records of `size` bytes per second. `login`: librdkafka's properties for TLS and login.
    """
    settings = folder / "login.json"
    settings.write_text(json.dumps(dict(login or {})), encoding="utf-8")
    where = ["--bootstrap", bootstrap, "--topic", topic, "--partitions", str(partitions), "--login", str(settings)]
    pace = ["--rate", str(rate), "--size", str(size)]
    children: list[_Child] = []
    try:
        children.append(_Child(folder, "consume", "consumer", where))
        children += [_Child(folder, "produce", f"producer-{number}", where + pace) for number in range(producers)]
        yield Load(children[1:], children[0])
    finally:
        for child in children:
            child.kill()
