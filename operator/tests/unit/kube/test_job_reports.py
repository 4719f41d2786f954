"""Pods that answer, are slow, endless, compressed, redirect, or send nonsense: none of them harms the operator."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from odradek_operator.kube.job_reports import ask_url
from odradek_operator.kube.mirrors.mirror_reports import ask_metrics
from odradek_operator.mirrors.mirror_report import MAX_METRICS_BYTES, MirrorReport, ReportedPartition
from odradek_operator.pipelines.job_report import MAX_REPORT_BYTES, JobReport


@asynccontextmanager
async def answering(
    *, location: str = "", content: bytes = b"{}", status: int = 200
) -> AsyncIterator[tuple[str, list[str]]]:
    """Serve one answer, and count the requests by path."""
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=status, body=content, headers={"Location": location} if location else {})

    async with _served(answer) as url:
        yield url, asked


@asynccontextmanager
async def _served(handler: object) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get("/{path:.*}", handler)  # type: ignore[arg-type]
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/status"
    finally:
        await runner.cleanup()


async def test_a_report_is_read() -> None:
    async with answering(content=json.dumps({"batch": 3, "offsetsBehindLatest": 5}).encode()) as (url, _):
        assert await ask_url(url, name="d") == JobReport(batch=3, lag=5)


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"{}", 500),
        (b"<html>", 200),
        (b'{"a": "' + b"x" * MAX_REPORT_BYTES + b'"}', 200),
        (b"[" * 60_000, 200),
        (gzip.compress(b'{"batch": 1}' + b" " * 10_000_000), 200),
    ],
)
async def test_what_is_no_report_is_none(content: bytes, status: int) -> None:
    async with answering(content=content, status=status) as (url, _):
        assert await ask_url(url, name="d") is None


async def test_redirects_are_not_followed() -> None:
    async with answering(location="/secret", status=302) as (url, asked):
        assert await ask_url(url, name="d") is None
        assert asked == ["/status"]


async def test_an_answer_that_never_ends_is_given_up() -> None:
    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0)

    async with _served(drip) as url:
        assert await ask_url(url, name="d", seconds=0.3) is None


async def test_nobody_listens() -> None:
    async with answering() as (url, _):
        pass
    assert await ask_url(url, name="d") is None


async def test_the_metrics_of_a_mirror_are_read() -> None:
    line = b'odradek_mirror_lag_records{source="east",topic="a",partition="2"} 4.0\n'
    async with answering(content=line) as (url, _):
        assert await ask_metrics(url, name="p") == MirrorReport(records={ReportedPartition("east", "a", 2): 4})


@pytest.mark.parametrize(
    ("content", "status"),
    [(b"", 503), (b"odradek_mirror_lag_records{", 200), (b"#" * (MAX_METRICS_BYTES + 1), 200)],
)
async def test_what_are_no_metrics_is_none(content: bytes, status: int) -> None:
    async with answering(content=content, status=status) as (url, _):
        assert await ask_metrics(url, name="p") is None
