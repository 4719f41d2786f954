"""Metrics and probes of an ensemble member over HTTP.

It provides routes for `odradek.metrics.http`; `pod/zookeeper_pod` uses it. Each scrape queries the server, and nothing
is cached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from resource import getpagesize
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from odradek.metrics.http import HttpRequest, HttpResponse, Probe, Route, metrics_route, probe_route
from odradek_operator.ensemble.four_letter_words import NoAnswerError, ask
from odradek_operator.ensemble.jvm_counters import LayoutError, collections, counters
from odradek_operator.ensemble.mntr import SeriesKind, mode, parse, samples

_HOST: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One running member."""

    process_id: int
    client_port: int
    server_id: int
    members: int
    temporary: Path = Path("/tmp")
    """Location of the JVM's counters. It does not depend on the JVM's directory for temporary files."""

    def routes(self) -> dict[str, Route]:
        """Return the routes by path."""
        return {"/metrics": self._metrics, "/livez": self._alive, "/healthz": self._alive, "/readyz": self._serving}

    async def _metrics(self, request: HttpRequest) -> HttpResponse:
        try:
            told = parse(await ask(_HOST, self.client_port, "mntr"))
        except NoAnswerError:
            told = {}  # The series of the process are still returned, and `up` shows that the pod answers.
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Told(told, self))
        registry.register(_JavaProcess(self))
        ProcessCollector(pid=lambda: self.process_id, registry=registry)
        # Reading /proc takes a moment; outside the loop it does not delay probes.
        return await asyncio.to_thread(_rendered, registry, request)

    async def _alive(self, request: HttpRequest) -> HttpResponse:
        return await self._probe(request, "ruok", lambda answer: answer.strip() == "imok")

    async def _serving(self, request: HttpRequest) -> HttpResponse:
        return await self._probe(request, "srvr", lambda answer: mode(answer) is not None)

    async def _probe(self, request: HttpRequest, word: str, passes: Callable[[str], bool]) -> HttpResponse:
        try:
            answer = await ask(_HOST, self.client_port, word)
        except NoAnswerError as error:
            probe = Probe(False, f"ZooKeeper: {error}.")
        else:
            found = mode(answer)
            said = f"it is {found}" if found else (answer.strip().splitlines() or ["nothing"])[0]
            probe = Probe(passes(answer), f"ZooKeeper answers {word}: {said}")
        response = probe_route(lambda: probe)(request)
        assert isinstance(response, HttpResponse)
        return response


def _rendered(registry: CollectorRegistry, request: HttpRequest) -> HttpResponse:
    response = metrics_route(registry)(request)
    assert isinstance(response, HttpResponse)
    return response


class _Told(Collector):
    """Return the series of one answer to `mntr`."""

    def __init__(self, told: Mapping[str, str], member: Member) -> None:
        self._told = told
        self._member = member

    def collect(self) -> Iterator[Metric]:
        member = self._member
        for series, labels, value in samples(self._told, server_id=member.server_id, members=member.members):
            made = CounterMetricFamily if series.kind is SeriesKind.COUNTER else GaugeMetricFamily
            family = made(series.name, series.help, labels=list(labels))
            family.add_metric(list(labels.values()), value)
            yield family


class _JavaProcess(Collector):
    """Return the `jvm_*` series of the Java process, from /proc and the JVM's counters; none if it has ended."""

    def __init__(self, member: Member) -> None:
        self._member = member

    def collect(self) -> Iterator[Metric]:
        folder = Path("/proc") / str(self._member.process_id)
        try:
            resident = int((folder / "statm").read_text().split()[1]) * getpagesize()
            threads = len(list((folder / "task").iterdir()))
        except OSError:
            return
        memory = GaugeMetricFamily("jvm_memory_used_bytes", "Resident memory of the Java process.", labels=["area"])
        memory.add_metric(["heap"], resident)
        yield memory
        yield GaugeMetricFamily("jvm_threads_current", "Threads of the Java process.", value=threads)
        yield self._collections()

    def _collections(self) -> Metric:
        family = SummaryMetricFamily("jvm_gc_collection_seconds", "Garbage collections.", labels=["gc"])
        for path in self._member.temporary.glob(f"hsperfdata_*/{self._member.process_id}"):
            try:
                found = collections(counters(path.read_bytes()))
            except (OSError, LayoutError):
                continue  # Java is starting or ending: the next scrape has the counters.
            for collector, count, seconds in found:
                family.add_metric([collector], count, seconds)
        return family
