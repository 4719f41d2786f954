"""Groups of consumers with the broker's own group coordinator, in virtual time: members come, leave and crash.

Whatever happens, no record is lost: a commit never covers a record that its member has not processed. Without crashes,
each record is processed exactly once.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import pytest

from odradek.base.errors import NetworkError
from odradek.base.ports import Buffer
from odradek.base.types import TopicPartition
from odradek.client.consumer.consumer import Consumer
from odradek.client.metadata import Node
from odradek.client.settings import ClientSettings
from odradek.protocol.apis import ApiKey
from odradek.records.v2.batch import BatchBuilder
from odradek_testkit.coordination import OFFSETS_PARTITIONS, Server, image
from odradek_testkit.loop import VirtualClock, run_virtual

PARTITIONS: Final = [TopicPartition("t", number) for number in range(5)]
COORDINATED: Final = {
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
}
SETTINGS: Final = ClientSettings.of(
    "fake:9001",
    group_id="g",
    auto_offset_reset="earliest",
    heartbeat_interval_ms=500,
    session_timeout_ms=6_000,
    auto_commit_interval_ms=700,
    max_poll_records=3,
    max_poll_interval_ms=60_000,
)


class GroupLink:
    """A connection of one member. Requests about groups go to the coordinator, the others to the fake cluster."""

    def __init__(self, inner: Any, plant: Plant, member: Member) -> None:
        self._inner = inner
        self._plant = plant
        self._member = member

    @property
    def is_open(self) -> bool:
        return bool(self._inner.is_open)

    @property
    def features(self) -> Any:
        return self._inner.features

    def pick(self, api_key: ApiKey) -> int:
        return int(self._inner.pick(api_key))

    async def ask(self, expected: Any, version: int, message: Any, *, timeout_ms: float | None = None) -> Any:
        self._check()
        if expected.API_KEY not in COORDINATED:
            return await self._inner.ask(expected, version, message, timeout_ms=timeout_ms)
        await self._plant.clock.sleep_ms(1 + self._plant.source.randrange(5))
        self._check()
        answer = await self._plant.server.ask(expected.API_KEY, version, message)
        self._check()
        return answer

    async def call(self, encode: Any, **options: Any) -> Buffer:
        self._check()
        return await self._inner.call(encode, **options)

    async def close(self) -> None:
        await self._inner.close()

    def _check(self) -> None:
        if self._member.has_crashed:
            raise NetworkError("the process of the member is gone")


class Member:
    """A consumer, and the application that processes its records, which takes time."""

    def __init__(self, plant: Plant, strategy: Sequence[str]) -> None:
        self._plant = plant
        self.has_crashed = False
        self._is_leaving = False
        settings = SETTINGS.replace(partition_assignment_strategy=tuple(strategy))
        self.consumer = Consumer(settings, "t", clock=plant.clock, connect=self._connect)
        self._task = asyncio.create_task(self._run())

    async def _connect(self, node: Node) -> GroupLink:
        return GroupLink(await self._plant.cluster.connect(node), self._plant, self)

    async def _run(self) -> None:
        async with self.consumer:
            while not self._is_leaving:
                found = await self.consumer.getmany(timeout_ms=self._plant.source.choice([0, 50, 300]))
                await self._plant.clock.sleep_ms(self._plant.source.choice([1, 20, 400]))
                if self.has_crashed:
                    return
                for records in found.values():
                    self._plant.processed.update(record.value or b"" for record in records)

    async def leave(self) -> None:
        self._is_leaving = True
        await self._task

    async def crash(self) -> None:
        self.has_crashed = True
        self._task.cancel()
        await asyncio.wait({self._task})


class Plant:
    """A topic, the coordinator, and the members of the group."""

    def __init__(self, cluster: Any, seed: int, strategy: Sequence[str]) -> None:
        self.cluster = cluster
        self.source = random.Random(seed)
        self.clock = VirtualClock()
        self.server = Server()
        self.server.view.image = image(*PARTITIONS, *OFFSETS_PARTITIONS)
        self.processed: Counter[bytes] = Counter()
        self.written = 0
        self._strategy = strategy
        self._members: list[Member] = []

    async def run(self, *, crashes: bool) -> None:
        await self.server.lead()
        for _ in range(60):
            action = self.source.random()
            if action < 0.15 and len(self._members) < 4:
                self._members.append(Member(self, self._strategy))
            elif action < 0.25 and len(self._members) > 1:
                await self._members.pop(self.source.randrange(len(self._members))).leave()
            elif action < 0.3 and crashes and self._members:
                await self._members.pop(self.source.randrange(len(self._members))).crash()
            for _ in range(self.source.randrange(8)):
                self._write()
            await self.clock.sleep_ms(self.source.randrange(1_500))
        self._members.append(Member(self, self._strategy))
        async with asyncio.timeout(600):
            while len(self.processed) < self.written:
                await self.clock.sleep_ms(1_000)
        for member in self._members:
            await member.leave()
        await self.server.groups.close()

    def _write(self) -> None:
        builder = BatchBuilder(limit_bytes=1 << 20)
        builder.append(None, b"%d" % self.written, timestamp_ms=0)
        self.written += 1
        self.cluster.logs[self.source.choice(PARTITIONS)].append(memoryview(builder.build()))


def run_group(cluster: Any, seed: int, strategy: Sequence[str], *, crashes: bool) -> tuple[Counter[bytes], int]:
    """Return how often each record was processed, and the number of written records."""

    async def main() -> tuple[Counter[bytes], int]:
        plant = Plant(cluster, seed, strategy)
        await plant.run(crashes=crashes)
        return plant.processed, plant.written

    return run_virtual(main())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("strategy", [("cooperative-sticky",), ("sticky",), ("range", "cooperative-sticky")])
def test_each_record_is_processed_once_while_members_come_and_leave(
    fakes: Any, strategy: tuple[str, ...], seed: int
) -> None:
    processed, written = run_group(fakes.cluster({"t": len(PARTITIONS)}), seed, strategy, crashes=False)
    assert (len(processed), set(processed.values())) == (written, {1})


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("strategy", [("cooperative-sticky",), ("sticky",)])
def test_no_record_is_lost_when_members_crash(fakes: Any, strategy: tuple[str, ...], seed: int) -> None:
    processed, written = run_group(fakes.cluster({"t": len(PARTITIONS)}), seed, strategy, crashes=True)
    assert len(processed) == written
