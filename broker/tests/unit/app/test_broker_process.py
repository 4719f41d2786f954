"""The properties of a broker process and its errors, garbage collection, heartbeats."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.app.broker_process import (
    GARBAGE_THRESHOLDS,
    freeze_gc,
    load,
    raise_gc_thresholds,
    run,
    send_heartbeats,
)
from odradek.app.supervisor import BEAT_INTERVAL_MS, Lifeline
from odradek.base.errors import ConfigError
from odradek.zk.port import ZkSettings
from odradek_testkit.loop import run_virtual
from odradek_testkit.net import SimulatedNetwork
from odradek_testkit.zookeeper import SimulatedEnsemble, SimulatedZk


def test_overrides_win_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("broker.id=1\nlog.dirs=/data\n", encoding="utf-8")
    assert load(str(path), ["broker.id=2", "num.partitions = 3"]) == {
        "broker.id": "2",
        "log.dirs": "/data",
        "num.partitions": "3",
    }


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "server.properties"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"server\.properties"):
        load(str(path), [])


@pytest.mark.parametrize(
    ("content", "overrides"),
    [(None, []), ("", []), ("broker.id=1\nzookeeper.connect=x\n", ["num.partitions=none"]), ("", ["novalue"])],
)
def test_a_failure_ends_the_process(tmp_path: Path, content: str | None, overrides: list[str]) -> None:
    path = tmp_path / "server.properties"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    assert run(str(path), overrides) == 1


class Cycle:
    """Garbage that only the garbage collector can free."""

    freed = 0

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        Cycle.freed += 1


@pytest.fixture
def collector() -> Iterator[None]:
    thresholds, was_frozen = gc.get_threshold(), gc.get_freeze_count() > 0
    yield
    gc.unfreeze()
    if was_frozen:
        gc.freeze()
    gc.set_threshold(*thresholds)


@pytest.mark.usefixtures("collector")
def test_objects_of_the_start_are_frozen_and_later_ones_are_collected() -> None:
    Cycle.freed = 0
    Cycle()
    stays = [[number] for number in range(1000)]
    raise_gc_thresholds()
    freeze_gc()
    assert Cycle.freed == 1, "garbage of the start is freed"
    assert gc.get_freeze_count() > len(stays)
    assert not any(one is stays for one in gc.get_objects())
    assert gc.get_threshold() == GARBAGE_THRESHOLDS
    Cycle()
    gc.collect()
    assert Cycle.freed == 2


def frames_of(reading: int) -> list[bytes]:
    data = os.read(reading, 1 << 16)
    return [data[start : start + 25] for start in range(0, len(data), 25)]


def test_the_parent_knows_a_session_as_soon_as_it_begins() -> None:
    """A broker that crashes right after its registration must not keep its znodes until the session times out."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        zookeeper = SimulatedZk(SimulatedEnsemble(SimulatedNetwork(loop, seed=0)), ZkSettings(connect="simulated"))
        began = loop.time()
        beating = loop.create_task(send_heartbeats(zookeeper, Lifeline(writing)))
        await zookeeper.start()
        assert loop.time() - began < BEAT_INTERVAL_MS / 1000
        without, with_session = frames_of(reading)
        assert without == bytes(25)
        session_id, password = zookeeper.credentials or (0, b"")
        assert with_session == b"\x01" + session_id.to_bytes(8, "big", signed=True) + password
        beating.cancel()
        await zookeeper.close()

    try:
        run_virtual(scenario())
    finally:
        os.close(reading)
        os.close(writing)


def test_a_broker_without_oauthbearer_imports_no_library_for_it() -> None:
    """`jwt` and `cryptography` take 9 MB and 20 ms of CPU time."""
    program = (
        "import sys, odradek.app.broker_process, odradek.app.broker\n"
        "print([name for name in ('jwt', 'cryptography') if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout == "[]\n"
