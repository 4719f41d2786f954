"""Java consumers and consumers of this project share groups with the sticky assignors. Either can be the leader."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from odradek.base.types import TopicPartition
from odradek.client.admin import Admin
from odradek.client.consumer.consumer import Consumer
from odradek.client.models import NewTopic
from odradek.client.producer.producer import Producer
from odradek.client.settings import ClientSettings
from odradek.testing.running_cluster import RunningCluster
from odradek.testing.waiting import wait_until
from odradek_testkit.interop.apache import QUICK_START, compile_java, jars, java_command

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow]

PARTITIONS: Final = 6
SOURCE: Final = Path(__file__).parents[1] / "java" / "GroupConsume.java"
ASSIGNORS: Final = {
    "sticky": "org.apache.kafka.clients.consumer.StickyAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}


class GroupReader:
    """What the members of both kinds have in common."""

    def __init__(self) -> None:
        self.owned: set[int] = set()
        self.revoked: set[int] = set()
        """All partitions that it has ever given up."""
        self.values: list[str] = []

    def note(self, event: str, numbers: Sequence[int]) -> None:
        if event == "assigned":
            self.owned.update(numbers)
        else:
            assert event == "revoked"
            self.owned.difference_update(numbers)
            self.revoked.update(numbers)


class OwnReader(GroupReader):
    """A consumer of this project, which is also its listener."""

    async def run(self, consumer: Consumer, topic: str) -> None:
        consumer.subscribe([topic], listener=self)
        while True:
            for records in (await consumer.getmany(timeout_ms=100)).values():
                self.values += [(record.value or b"").decode() for record in records]

    async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.note("revoked", [number for _, number in partitions])

    async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.note("assigned", [number for _, number in partitions])


class JavaReader(GroupReader):
    """A Java process."""

    async def run(self, output: asyncio.StreamReader) -> None:
        while line := (await output.readline()).decode().rstrip("\n"):
            event, _, rest = line.partition(" ")
            if event == "record":
                self.values.append(rest)
            else:
                self.note(event, [int(number) for number in rest.split(",") if number])


@pytest.fixture(scope="module")
def java(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that runs a Java consumer, without its arguments."""
    folder = jars("3.9.1", Path(pytestconfig.rootpath) / ".interop")
    target = tmp_path_factory.mktemp("java")
    compile_java(folder, [SOURCE], target)
    command = java_command(folder, "GroupConsume", heap="96m", options=QUICK_START)
    command[command.index("-cp") + 1] += f":{target}"
    return command


@pytest.fixture
async def settings(odradek_cluster: RunningCluster, group: str) -> AsyncIterator[ClientSettings]:
    """Settings of a group. The topic has the name of the group."""
    settings = ClientSettings.of(
        odradek_cluster.bootstrap, group_id=group, auto_offset_reset="earliest", heartbeat_interval_ms=100
    )
    async with Admin(settings) as admin:
        await admin.create_topics([NewTopic(name=group, partitions=PARTITIONS, replication_factor=1)])
        yield settings
        await admin.delete_topics([group])


@asynccontextmanager
async def own_member(settings: ClientSettings, assignor: str) -> AsyncIterator[OwnReader]:
    reader = OwnReader()
    assert settings.group_id is not None
    async with Consumer(settings.replace(partition_assignment_strategy=(assignor,))) as consumer:
        task = asyncio.create_task(reader.run(consumer, settings.group_id))
        try:
            yield reader
        finally:
            task.cancel()
            await asyncio.wait({task})


@asynccontextmanager
async def java_member(command: list[str], settings: ClientSettings, assignor: str) -> AsyncIterator[JavaReader]:
    group = settings.group_id or ""
    words = [*command, ",".join(settings.bootstrap_servers), group, group, ASSIGNORS[assignor]]
    process = await asyncio.create_subprocess_exec(*words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    reader = JavaReader()
    assert process.stdin is not None
    assert process.stdout is not None
    task = asyncio.create_task(reader.run(process.stdout))
    try:
        yield reader
    finally:
        process.stdin.close()
        await process.wait()
        await task


async def until(condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(wait_until, condition, what="the members of the group")


async def send(settings: ClientSettings, values: Sequence[str]) -> None:
    async with Producer(settings) as producer:
        for number, value in enumerate(values):
            await producer.send(settings.group_id or "", value.encode(), partition=number % PARTITIONS)


@pytest.mark.parametrize("own_leads", [True, False], ids=["own leader", "Java leader"])
@pytest.mark.parametrize("assignor", ASSIGNORS)
async def test_members_of_both_kinds_share_a_group(
    settings: ClientSettings, java: list[str], assignor: str, own_leads: bool
) -> None:
    members = [
        lambda: own_member(settings, assignor),
        lambda: java_member(java, settings, assignor),
    ]
    open_first, open_second = members if own_leads else reversed(members)
    everything = set(range(PARTITIONS))
    async with open_first() as first:
        await until(lambda: first.owned == everything)
        await send(settings, [f"a{number}" for number in range(12)])
        await until(lambda: len(first.values) == 12)
        async with open_second() as second:
            await until(lambda: len(first.owned) == len(second.owned) == PARTITIONS // 2)
            assert first.owned | second.owned == everything
            if assignor == "cooperative-sticky":
                assert first.revoked == second.owned
            kept = set(first.owned)
            await send(settings, [f"b{number}" for number in range(12)])
            await until(lambda: len(first.values) + len(second.values) == 24)
            async with open_first() as third:
                await until(lambda: len(first.owned) == len(second.owned) == len(third.owned) == 2)
                # Partitions moved only to the new member.
                assert first.owned < kept
                assert second.owned < everything - kept
            await until(lambda: (len(first.owned), len(second.owned)) == (3, 3))
        await until(lambda: first.owned == everything)
        await send(settings, [f"c{number}" for number in range(12)])
        await until(lambda: len(first.values) + len(second.values) == 36)
    expected = sorted(f"{letter}{number}" for letter in "abc" for number in range(12))
    assert sorted([*first.values, *second.values, *third.values]) == expected
