"""Any mix of buffers and file regions arrives unchanged and in order, for any page cache and any reader."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.base.ports import Buffer, File, FileRegion, Part
from odradek.base.system_ports import SystemFiles
from odradek.network.outflow import OutflowEvents, SocketOutflow
from odradek.network.pages import FileAccess

CONTENT = bytes(range(251)) * 1_200

_BUFFERS = st.one_of(st.binary(max_size=40), st.integers(0, 60_000).map(lambda size: b"%d" % size * (size // 4)))
_REGIONS = st.tuples(st.integers(0, len(CONTENT) - 1), st.integers(1, len(CONTENT)))
_RUNS = st.lists(st.lists(st.one_of(_BUFFERS, _REGIONS), max_size=12), min_size=1, max_size=4)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> File:
    made = SystemFiles().open(f"{tmp_path_factory.mktemp('outflow')}/log", create=True)
    made.pwritev((CONTENT,), 0)
    return made


async def _sent(runs: list[list[Part]], resident: list[bool], reads: list[int]) -> tuple[bytes, int]:
    """Return the received bytes, including those that the outflow left to the transport, and the counts."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 10)
    ours.setblocking(False)
    theirs.setblocking(False)
    finished: list[list[Buffer]] = []
    counted = 0
    received = bytearray()

    def count(size: int) -> None:
        nonlocal counted
        counted += size

    def refuse(reason: str) -> None:
        raise AssertionError(reason)

    async def at_once(_path: str, job: object) -> object:
        assert callable(job)
        return job()

    asked = iter(resident)
    access = FileAccess(read=at_once, is_resident=lambda *_: next(asked, True))
    events = OutflowEvents(on_sent=count, on_finished=finished.append, on_failed=refuse)
    outflow = SocketOutflow(ours.fileno(), events, access, loop)
    outflow.put(runs[0])
    outflow.start()
    later = list(runs[1:])
    turn = 0
    while not finished:
        if later:
            outflow.put(later.pop(0))
        with contextlib.suppress(BlockingIOError):
            received += theirs.recv(reads[turn % len(reads)])
        turn += 1
        await asyncio.sleep(0)
    ours.close()
    while piece := theirs.recv(1 << 20):
        received += piece
    theirs.close()
    rest = [*finished[0], *(part for run in later for part in run)]
    loaded = [part.load() if isinstance(part, FileRegion) else part for part in rest]
    return bytes(received) + b"".join(loaded), counted + sum(map(len, loaded))


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    runs=_RUNS,
    resident=st.lists(st.booleans(), max_size=30),
    reads=st.lists(st.integers(1, 1 << 16), min_size=1, max_size=5),
)
def test_any_mix_arrives_as_it_is(
    new_loop: object, file: File, runs: list[list[bytes | tuple[int, int]]], resident: list[bool], reads: list[int]
) -> None:
    parts: list[list[Part]] = [
        [
            part if isinstance(part, bytes) else FileRegion(file, part[0], min(part[1], len(CONTENT) - part[0]))
            for part in run
        ]
        for run in runs
    ]
    expected = b"".join(
        CONTENT[part.position : part.position + len(part)] if isinstance(part, FileRegion) else part
        for run in parts
        for part in run
    )
    reads = [max(size, len(expected) // 200 + 1) for size in reads]
    assert callable(new_loop)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        received, counted = runner.run(_sent(parts, resident, reads))

    assert received == expected
    assert counted == len(expected)
