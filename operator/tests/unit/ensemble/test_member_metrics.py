"""Metrics and probes of a member, whose ZooKeeper server is simulated over real sockets."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from odradek.metrics.http import HttpRequest, HttpResponse
from odradek.testing.free_ports import free_ports
from odradek_operator.ensemble import four_letter_words as words
from odradek_operator.ensemble.member_metrics import Member

REAL = (Path(__file__).parent / "data/mntr-leader-3.9.5.txt").read_text(encoding="utf-8")
NOT_SERVING = "This ZooKeeper instance is not currently serving requests\n"


@asynccontextmanager
async def server(answers: dict[str, str]) -> AsyncIterator[Member]:
    """Run a member whose server gives these answers to four-letter words, and no answer to other words."""

    handled: set[asyncio.Task[None]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handled.add(task)
        try:
            word = (await reader.readexactly(4)).decode()
        except asyncio.IncompleteReadError:
            word = ""  # The other side has stopped waiting.
        if word in answers:
            writer.write(answers[word].encode())
        else:
            await reader.read()  # Wait until the other side closes the connection.
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with listening:
        yield member(listening.sockets[0].getsockname()[1])
        await asyncio.gather(*handled)


def member(port: int) -> Member:
    return Member(process_id=os.getpid(), client_port=port, server_id=2, members=3)


async def get(of: Member, path: str) -> tuple[int, str]:
    answer = of.routes()[path](HttpRequest(path, "", ""))
    response = answer if isinstance(answer, HttpResponse) else await answer
    return int(response.status), response.body.decode()


async def test_metrics_contain_series_of_the_server_and_the_process() -> None:
    async with server({"mntr": REAL}) as of:
        status, text = await get(of, "/metrics")
    assert status == 200
    assert "zookeeper_quorumsize 1.0\n" in text
    assert 'zookeeper_packetssent_total{memberType="Leader",replicaId="2"} 2.0\n' in text
    for name in ("process_open_fds ", "process_cpu_seconds_total ", "jvm_threads_current ", "jvm_memory_used_bytes{"):
        assert f"\n{name}" in text


async def test_without_a_server_the_series_of_the_process_remain() -> None:
    (port,) = free_ports(1)
    status, text = await get(member(port), "/metrics")
    assert status == 200
    assert "zookeeper_" not in text
    assert "process_open_fds " in text


@pytest.mark.parametrize(
    ("answers", "alive", "serving"),
    [
        ({"ruok": "imok", "srvr": "Mode: follower\n"}, 200, 200),
        ({"ruok": "imok", "srvr": NOT_SERVING}, 200, 503),
        ({"ruok": "ruok is not executed because it is not in the whitelist.\n", "srvr": ""}, 503, 503),
        ({}, 503, 503),
    ],
)
async def test_probes_of_a_healthy_member_succeed(
    answers: dict[str, str], alive: int, serving: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not answers:
        monkeypatch.setattr(words.ask, "__kwdefaults__", {"timeout_seconds": 0.05, "tls": None})
    async with server(answers) as of:
        assert (await get(of, "/livez"))[0] == alive
        assert (await get(of, "/healthz"))[0] == alive
        assert (await get(of, "/readyz"))[0] == serving


async def test_failed_probes_have_a_reason() -> None:
    async with server({"srvr": NOT_SERVING}) as of:
        assert "not currently serving" in (await get(of, "/readyz"))[1]
    (port,) = free_ports(1)
    assert "no answer to ruok" in (await get(member(port), "/livez"))[1]


async def test_an_endless_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "MAX_ANSWER_BYTES", 100)
    async with server({"mntr": REAL}) as of:
        with pytest.raises(words.NoAnswerError, match="more than 100 bytes"):
            await words.ask("127.0.0.1", of.client_port, "mntr")
