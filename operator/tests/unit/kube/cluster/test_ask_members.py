"""Queries for the roles of ensemble members. Members that do not answer are missing from the result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from odradek_operator.kube.cluster import zookeeper_session
from odradek_operator.kube.cluster.zookeeper_session import ask_members
from odradek_operator.lifecycle.observed_cluster import Quorum

NOT_SERVING = "This ZooKeeper instance is not currently serving requests\n"


def answer(state: str, **more: int) -> str:
    lines = {"zk_version": "3.9", "zk_server_state": state, **more, "zk_znode_count": "5"}
    return "".join(f"{key}\t{value}\n" for key, value in lines.items())


LEADING = answer("leader", zk_followers=2, zk_synced_followers=1)
FOLLOWING = answer("follower")


@asynccontextmanager
async def members(*answers: str | None) -> AsyncIterator[tuple[dict[int, str], int]]:
    """Serve each answer on its own loopback address, all on one port. None means no answer."""
    ended = asyncio.Event()
    port = 0
    listening: list[asyncio.Server] = []
    for number, text in enumerate(answers):

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: str | None = text) -> None:
            assert await reader.readexactly(4) == b"mntr"
            if text is None:
                await ended.wait()
            else:
                half = len(text) // 2
                for piece in (text[:half], text[half:]):
                    writer.write(piece.encode())
                    await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, f"127.0.0.{number + 1}", port)
        port = server.sockets[0].getsockname()[1]
        listening.append(server)
    try:
        yield {number: f"127.0.0.{number + 1}" for number in range(len(answers))}, port
    finally:
        ended.set()
        for server in listening:
            server.close()
            await server.wait_closed()


async def test_members_report_their_mode_and_the_leader_its_followers() -> None:
    async with members(LEADING, FOLLOWING, NOT_SERVING) as (hosts, port):
        assert await ask_members(hosts, port=port) == Quorum(modes={0: "leader", 1: "follower"}, followers=1)


async def test_members_that_are_absent_or_silent_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper_session, "TIMEOUT_SECONDS", 0.2)
    async with members(None, answer("standalone")) as (hosts, port):
        asked = {**hosts, 2: "127.0.0.77"}
        assert await ask_members(asked, port=port) == Quorum(modes={1: "standalone"}, followers=None)


async def test_two_leaders_count_as_no_leader() -> None:
    async with members(LEADING, LEADING) as (hosts, port):
        assert await ask_members(hosts, port=port) == Quorum(modes={0: "leader", 1: "leader"}, followers=None)


async def test_without_members_nothing_is_asked() -> None:
    assert await ask_members({}) == Quorum()
