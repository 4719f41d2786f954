"""Reads during the faults with the consumer of Odradek, and checks that offsets and order are correct.

Options: bootstrap, topic, partitions, request_timeout_ms. Result: the number of records, and a message for each
violation. After SIGTERM it reads to the ends of all partitions.
"""

from __future__ import annotations

import asyncio
import signal
from typing import Any, Final

import uvloop

from odradek.base.types import TopicPartition
from odradek.client.consumer.consumer import Consumer
from odradek.client.settings import ClientSettings
from ordeal.checking import Complaints, Order
from ordeal.clients.calling import answer, options
from ordeal.records import ForeignRecordError

_WAIT_MS: Final = 200
_AT_ONCE: Final = 5_000


class Follower:
    """A consumer of all partitions that checks every record."""

    def __init__(self, wanted: dict[str, Any], consumer: Consumer) -> None:
        self._consumer = consumer
        self._partitions = [TopicPartition(wanted["topic"], number) for number in range(wanted["partitions"])]
        self._orders = {partition: Order(partition.partition) for partition in self._partitions}
        self.complaints = Complaints()
        self.records = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Read until `stop` is set, then to the ends of all partitions."""
        self._consumer.assign(self._partitions)
        for partition in self._partitions:
            self._consumer.seek(partition, 0)
        while not stop.is_set():
            await self._take()
        ends = await self._consumer.end_offsets(self._partitions)
        while any(self._orders[partition].next_offset < end for partition, end in ends.items()):
            await self._take()

    async def _take(self) -> None:
        for partition, records in (await self._consumer.getmany(timeout_ms=_WAIT_MS, max_records=_AT_ONCE)).items():
            self.records += len(records)
            for record in records:
                try:
                    _, wrong = self._orders[partition].see(record.offset, record.value)
                except ForeignRecordError as error:
                    wrong = f"partition {partition.partition}, offset {record.offset}: {error}"
                self.complaints.add(wrong)


async def main() -> None:
    """Read until SIGTERM, then to the ends, and write the result."""
    wanted = options()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    settings = ClientSettings.of(
        wanted["bootstrap"],
        auto_offset_reset="none",
        request_timeout_ms=wanted["request_timeout_ms"],
        client_id="follower",
    )
    async with Consumer(settings) as consumer:
        follower = Follower(wanted, consumer)
        await follower.run(stop)
    answer(wanted, {"records": follower.records, "complaints": follower.complaints.shown()})


if __name__ == "__main__":
    uvloop.run(main())
