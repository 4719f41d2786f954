"""A producer with a fixed rate and a consumer of the same partition, in phases that the runner names.

Options: address, topic, rate, record size. Each line on standard input starts a phase with that name, until the input
is closed. Figures: for each phase, percentiles of the latency until the acknowledgement (`produce_<phase>_p99_ms`) and
until the consumer has the record. Latency counts from the time when a record was due, so a stall affects every record
that it delays. The topic has one partition and is empty at first, so record n has offset n.
"""

from __future__ import annotations

import asyncio
import struct
import sys
import time
from collections import defaultdict
from typing import Final

import uvloop

from comparison.batches import batch, filler
from comparison.clients.calling import answer, options
from comparison.figures import latency_figures
from comparison.wire import CLIENT_ID, produce_frame, produce_result
from odradek.base.types import TopicPartition
from odradek.protocol.hotpath import FetchEntry, FetchRequest, decode_fetch_response, encode_fetch_request
from odradek_testkit.batches import iterate

FETCH_VERSION: Final = 11
_TICK_SECONDS: Final = 0.001


class Steady:
    """The producer, the consumer and their measurements."""

    def __init__(self, topic: str, rate: float, record_bytes: int) -> None:
        self._topic = topic
        self._rate = rate
        records = batch(filler(record_bytes), 1, timestamp_ms=int(time.time() * 1000))
        self._frame = produce_frame(TopicPartition(topic, 0), records)
        self._due: list[float] = []
        """When each record was due, by offset."""
        self.phase = ""
        self._stopped = False
        self._all_sent = False
        self._acknowledged: defaultdict[str, list[float]] = defaultdict(list)
        self._consumed: defaultdict[str, list[float]] = defaultdict(list)

    def stop(self) -> None:
        """Stop sending. `hear` and `consume` return when they have received every record."""
        self._stopped = True

    def figures(self) -> dict[str, float]:
        """Return the figures of every phase with a name."""
        found: dict[str, float] = {}
        for kind, phases in (("produce", self._acknowledged), ("consume", self._consumed)):
            for phase, times in phases.items():
                if phase:
                    found.update(latency_figures(times, f"{kind}_{phase}_"))
        return found

    async def send(self, writer: asyncio.StreamWriter) -> None:
        """Send the records that are due, every millisecond. Send one more at the end, so that pending requests
        complete.
        """
        began = time.perf_counter()
        while not self._stopped:
            now = time.perf_counter()
            while (due := began + len(self._due) / self._rate) <= now:
                self._due.append(due)
                writer.write(self._frame)
            await asyncio.sleep(_TICK_SECONDS)
        self._due.append(time.perf_counter())
        writer.write(self._frame)
        self._all_sent = True

    async def read_answers(self, reader: asyncio.StreamReader) -> None:
        """Record the latency of each acknowledgement."""
        answered = 0
        while not self._all_sent or answered < len(self._due):
            code, offset = produce_result(await _response(reader), self._topic)
            if code or offset != answered:
                raise RuntimeError(f"the response for record {answered} has error {code} and offset {offset}")
            self._acknowledged[self.phase].append((time.perf_counter() - self._due[answered]) * 1000)
            answered += 1

    async def consume(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Fetch continuously, and record the latency of each record."""
        following = 0
        while not self._all_sent or following < len(self._due):
            entry = FetchEntry(self._topic, None, 0, -1, following, -1, -1, 1 << 20)
            writer.write(encode_fetch_request(FETCH_VERSION, 0, CLIENT_ID, FetchRequest(500, 1, 1 << 20, [entry])))
            fetched = decode_fetch_response(FETCH_VERSION, await _response(reader))
            now = time.perf_counter()
            for row in fetched.partitions:
                if row.error_code:
                    raise RuntimeError(f"a fetch failed with error {row.error_code}")
                for _, header in iterate(row.records):
                    self._consumed[self.phase].append((now - self._due[header.base_offset]) * 1000)
                    following = header.next_offset


async def _response(reader: asyncio.StreamReader) -> memoryview:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return memoryview(await reader.readexactly(size))


async def _follow_phases(steady: Steady) -> None:
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        steady.phase = line.decode().strip()
    steady.stop()


async def main() -> None:
    """Run until standard input is closed."""
    wanted = options()
    steady = Steady(wanted["topic"], wanted["rate"], wanted["record_bytes"])
    produced = await asyncio.open_connection(wanted["host"], wanted["port"])
    consumed = await asyncio.open_connection(wanted["host"], wanted["port"])
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_follow_phases(steady))
        tasks.create_task(steady.read_answers(produced[0]))
        tasks.create_task(steady.send(produced[1]))
        tasks.create_task(steady.consume(*consumed))
    for _, writer in (produced, consumed):
        writer.close()
        await writer.wait_closed()
    answer(steady.figures())


if __name__ == "__main__":
    uvloop.run(main())
