"""10,000 mutated frames of every API sent to a broker: it keeps running, and other clients are not affected."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from odradek.network.channel import Channel
from odradek.protocol.apis import ApiKey
from odradek.testing.running_cluster import RunningCluster
from odradek_testkit.frames import every_api, mutated, random_request

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(1800)]

FRAMES = 10_000
FRAMES_PER_CONNECTION = 5
TRIPS = 100
"""Number of requests of another client after which no more responses are expected on a connection."""
GROWTH_LIMIT_BYTES = 48 << 20
"""Memory for fragmentation and caches. A leak of the memory of one frame in a hundred would exceed it many times."""


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


async def throw(host: str, port: int, frames: list[bytes], has_served_others: Coroutine[Any, Any, None]) -> None:
    """Send frames on one connection, and read until the broker closes it, has responded, or has served other clients.

    A request may have a timeout of weeks, for example to wait for the deletion of a topic from an earlier frame.
    """
    reader, writer = await asyncio.open_connection(host, port)

    async def read_on() -> None:
        with contextlib.suppress(OSError):
            for frame in frames:
                writer.write(frame)
            await writer.drain()
            writer.write_eof()
            while await reader.read(1 << 16):
                pass

    either = [asyncio.ensure_future(each) for each in (read_on(), has_served_others)]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    for each in either:
        each.cancel()
    await asyncio.gather(*either, return_exceptions=True)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


@pytest.mark.parametrize("seed", [1])
async def test_mutated_frames(odradek_single: RunningCluster, seed: int) -> None:
    host, _, port = odradek_single.bootstrap.partition(":")
    source = random.Random(seed)
    apis = every_api(source)
    pid = odradek_single.broker_pids[0]
    round_trips = 0
    next_trip = asyncio.Condition()
    done = asyncio.Event()
    other_channel = await Channel.open(host, int(port), client_id="bystander")

    async def keep_asking() -> None:
        nonlocal round_trips
        while not done.is_set():
            # A frame may have replaced the metadata by that of an empty cluster. The broker must respond nevertheless.
            await other_channel.ask(ApiKey.METADATA, 9, {"topics": None, "allow_auto_topic_creation": False})
            answer = await other_channel.ask(
                ApiKey.API_VERSIONS, 3, {"client_software_name": "a", "client_software_version": "1"}
            )
            assert answer.error_code == 0
            async with next_trip:
                round_trips += 1
                next_trip.notify_all()
            await asyncio.sleep(0)

    async def many_trips() -> None:
        enough = round_trips + TRIPS
        async with next_trip:
            await next_trip.wait_for(lambda: round_trips >= enough)

    async def attack(count: int) -> None:
        for number in range(0, count, FRAMES_PER_CONNECTION):
            picked = [apis[(number + step) % len(apis)] for step in range(FRAMES_PER_CONNECTION)]
            frames = [mutated(random_request(api, version, source), source) for api, version in picked]
            async with asyncio.timeout(300):
                await throw(host, int(port), frames, many_trips())

    asking = asyncio.create_task(keep_asking())
    await attack(FRAMES // 5)  # caches and lazily created objects are created here
    before = resident_bytes(pid)
    seen = round_trips
    await attack(FRAMES)
    done.set()
    await asking
    await other_channel.close()
    assert odradek_single.broker_pids[0] == pid, "the broker was restarted"
    assert round_trips > seen
    assert resident_bytes(pid) - before < GROWTH_LIMIT_BYTES
