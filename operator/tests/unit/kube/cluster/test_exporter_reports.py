"""Sizes and lag come from the exporter, and no round waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from odradek_operator.crds import Cluster
from odradek_operator.crds.types import Monitoring
from odradek_operator.exporter.report import Report, TopicReport, encode
from odradek_operator.kube.cluster import exporter_reports as reports
from odradek_operator.kube.cluster.exporter_reports import Reports, exporter_url

CLUSTER = Cluster(name="demo", namespace="shop", uid="1")
MANY = Report(topics={f"topic-{number:05}": TopicReport(partitions=3, size_bytes=number) for number in range(5_000)})


class Exporter:
    """A server that sends its answer in small pieces."""

    def __init__(self) -> None:
        self.report: Report | None = MANY
        self.asked = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked += 1
        if self.report is None:
            return web.Response(status=500)
        text = web.json_response(encode(self.report)).body
        assert isinstance(text, bytes)
        response = web.StreamResponse()
        await response.prepare(request)
        for start in range(0, len(text), 50_000):
            await response.write(text[start : start + 50_000])
            await asyncio.sleep(0)
        return response


@asynccontextmanager
async def asking(exporter: Exporter) -> AsyncIterator[Reports]:
    application = web.Application()
    application.router.add_get("/topics", exporter.answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    found = Reports(lambda cluster: f"http://127.0.0.1:{port}/topics")
    try:
        yield found
    finally:
        await found.close()
        await runner.cleanup()


def questions() -> list[asyncio.Task[object]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == "report of demo"]


async def read_report(found: Reports) -> Report | None:
    """Return the report after the query in progress."""
    await found.of(CLUSTER)
    await asyncio.gather(*questions())
    return await found.of(CLUSTER)


async def test_a_report_is_available_in_the_next_round() -> None:
    exporter = Exporter()
    async with asking(exporter) as found:
        assert await found.of(CLUSTER) is None
        assert await read_report(found) == MANY
        assert exporter.asked == 1


async def test_the_exporter_is_queried_only_periodically(monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = Exporter()
    async with asking(exporter) as found:
        for _ in range(10):
            await read_report(found)
        assert exporter.asked == 1
        monkeypatch.setattr(reports, "ASK_SECONDS", 0.0)
        exporter.report = Report()
        assert await read_report(found) == Report()


async def test_an_old_report_is_used_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = Exporter()
    async with asking(exporter) as found:
        assert await read_report(found) == MANY
        monkeypatch.setattr(reports, "ASK_SECONDS", 0.0)
        exporter.report = None
        assert await read_report(found) == MANY
        monkeypatch.setattr(reports, "STALE_SECONDS", 0.0)
        assert await read_report(found) is None


async def test_without_an_exporter_nothing_is_queried() -> None:
    exporter = Exporter()
    async with asking(exporter) as found:
        silent = Cluster(name="demo", namespace="shop", uid="1", monitoring=Monitoring(exporter=False))
        assert await found.of(silent) is None
        assert exporter.asked == 0


async def test_closing_cancels_a_query_in_progress() -> None:
    arrived, gone = asyncio.Event(), asyncio.Event()

    class Silent(Exporter):
        async def answer(self, request: web.Request) -> web.StreamResponse:
            arrived.set()
            await gone.wait()
            return web.Response()

    async with asking(Silent()) as found:
        await found.of(CLUSTER)
        await arrived.wait()
        await found.close()
        assert not questions()
        gone.set()


def test_the_url_of_an_exporter() -> None:
    assert exporter_url(CLUSTER) == "http://demo-kafka-exporter.shop.svc:9404/topics"
