"""Members of an ensemble are asked for their part; who does not answer is missing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from odradek_operator.kube import ensemble
from odradek_operator.kube.ensemble import modes

ANSWER = "Zookeeper version: 3.9\nLatency min/avg/max: 0/0.0/0\nMode: {}\nNode count: 5\n"


@asynccontextmanager
async def member(*pieces: str) -> AsyncIterator[tuple[str, int]]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(4) == b"srvr"
        for piece in pieces:
            writer.write(piece.encode())
            await writer.drain()
        writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with listening:
        yield listening.sockets[0].getsockname()[:2]


async def test_each_says_its_mode() -> None:
    whole = ANSWER.format("leader")
    async with member(whole) as first, member(*ANSWER.format("follower")) as second, member("not serving") as third:
        assert await modes({0: first, 1: second, 2: third}) == {0: "leader", 1: "follower"}


async def test_who_is_not_there_or_silent_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ensemble, "TIMEOUT_SECONDS", 0.2)
    gone = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await gone.wait()
        writer.close()

    listening = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with listening, member(ANSWER.format("standalone")) as there:
        quiet = listening.sockets[0].getsockname()[:2]
        async with member() as closed:
            pass
        assert await modes({0: quiet, 1: closed, 2: there}) == {2: "standalone"}
        gone.set()


async def test_nobody_is_asked_for_nothing() -> None:
    assert await modes({}) == {}
