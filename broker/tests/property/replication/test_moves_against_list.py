"""Compares a log that moves to another directory, under random operations, with a plain list of its records."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.base.types import TopicPartition
from odradek.log.partition_log import PartitionLog
from odradek.records.formats import iterate_entries, iterate_records
from odradek.records.v2.batch import stamp
from odradek.replication.partition import LeaderAndIsrState
from odradek_testkit.loop import VirtualClock, run_virtual
from odradek_testkit.replicas import TOPIC_ID, MemoryBroker, MemoryCluster, record_set

TP = TopicPartition("t", 0)
FOLLOWING = LeaderAndIsrState(
    controller_epoch=1, leader=2, leader_epoch=1, isr=(1, 2), replicas=(1, 2), partition_epoch=0, is_new=True
)

APPEND = st.tuples(st.just("append"), st.integers(1, 12))
CUT = st.tuples(st.just("cut"), st.integers(0, 15))
DELETE = st.tuples(st.just("delete"), st.integers(0, 15))
WAIT = st.tuples(st.just("wait"), st.integers(1, 4))
MOVE = st.tuples(st.just("move"), st.just(0))
STEPS = st.lists(st.one_of(APPEND, APPEND, CUT, DELETE, WAIT, MOVE), max_size=25)


class Replica:
    """A follower's log and the list that it must equal."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.broker = broker
        self.start = 0
        self.values: list[bytes] = []
        self._epoch = 1
        self._count = 0

    @property
    def log(self) -> PartitionLog:
        return self.broker.partition(TP).log

    def append(self, count: int) -> None:
        """Append one batch for each record."""
        for _ in range(count):
            self._count += 1
            value = b"value %d" % self._count
            records = record_set(value)
            stamp(records, 0, self.log.log_end_offset, self._epoch)
            self.log.append_as_follower(records)
            self.values.append(value)

    def cut(self, count: int) -> None:
        """Truncate up to `count` records; records of another leader follow."""
        end = max(len(self.values) - count, self.start)
        self.log.truncate_to(end)
        del self.values[end:]
        self._epoch += 1

    def delete(self, count: int) -> None:
        """Raise the log start by `count` records, at most to the log end."""
        self.log.high_watermark = self.log.log_end_offset
        self.start = min(self.start + count, len(self.values))
        self.log.delete_records_before(self.start)

    def move(self, _: int) -> None:
        """Move to the other directory; a second request during the move cancels it."""
        here = self.broker.logs.future_directory(TP) or self.broker.logs.directory_of(TP)
        (there,) = set(self.broker.config.log_dirs) - {here}
        assert self.broker.replicas.log_dirs.alter({TP: there}) == {TP: 0}

    def check(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, len(self.values))
        found: dict[int, bytes | None] = {}
        offset = self.start
        while offset < log.log_end_offset:
            data = log.read(offset, max_bytes=1 << 20).load()
            for position, header in iterate_entries(data):
                for record in iterate_records(data, position, header, limit=1 << 20):
                    found[record.offset] = record.value
                offset = header.next_offset
        assert found == {at: self.values[at] for at in range(self.start, len(self.values))}


@settings(max_examples=40, deadline=None)
@given(STEPS)
def test_a_log_that_moves_equals_a_list(steps: list[tuple[str, int]]) -> None:
    async def main(directory: Path) -> None:
        clock = VirtualClock()
        options = {"replica.fetch.max.bytes": "400", "replica.alter.log.dirs.io.max.bytes.per.second": "400000"}
        cluster = MemoryCluster(directory, clock, settings=options, topic_settings={"segment.bytes": "600"}, disks=2)
        broker = await cluster.start_broker(1)
        broker.replicas.roles.apply([(TP, TOPIC_ID, FOLLOWING)])
        replica = Replica(broker)
        for name, count in steps:
            if name == "wait":
                await asyncio.sleep(count / 1000)
            else:
                getattr(replica, name)(count)
        await clock.sleep_ms(60_000)
        assert broker.replicas.mover.moving == 0
        assert broker.logs.future(TP) is None
        replica.check()
        await cluster.close()

        broker = await cluster.start_broker(1)
        broker.replicas.roles.apply([(TP, TOPIC_ID, FOLLOWING)])
        replica.broker = broker
        replica.check()
        await cluster.close()

    with tempfile.TemporaryDirectory() as directory:
        run_virtual(main(Path(directory)))
