"""Aborted transactions in the results for read_committed consumers."""

from __future__ import annotations

import asyncio
from pathlib import Path

from odradek.base.errors import CorruptMessageError
from odradek.base.system_ports import SystemFiles
from odradek.base.types import TopicPartition
from odradek.records.checks.validate import AppendOrigin
from odradek.records.v2.batch import ControlType
from odradek.replication.partition import LeaderAndIsrState
from odradek.replication.replica_requests import FetchParams, FetchResult
from odradek.replication.sessions.fetch_session import FetchPartition
from odradek_testkit.logs import batch, marker
from odradek_testkit.loop import VirtualClock, run_virtual
from odradek_testkit.replicas import TOPIC_ID, MemoryBroker, MemoryCluster

TP = TopicPartition("t", 0)
STATE = LeaderAndIsrState(
    controller_epoch=3, leader=1, leader_epoch=5, isr=(1,), replicas=(1,), partition_epoch=2, is_new=True
)


async def fetch(broker: MemoryBroker, offset: int, **options: bool) -> FetchResult:
    answer: asyncio.Future[list[FetchResult]] = asyncio.get_running_loop().create_future()
    params = FetchParams(0, 1, 1 << 20, **options)  # type: ignore[arg-type]
    broker.replicas.fetch(params, (FetchPartition("t", 0, offset, 1 << 20),), answer.set_result)
    (result,) = await answer
    return result


def test_aborted_transactions_come_with_committed_reads_alone(tmp_path: Path) -> None:
    async def main() -> None:
        cluster = MemoryCluster(tmp_path, VirtualClock())
        broker = await cluster.start_broker(1)
        broker.replicas.roles.apply([(TP, TOPIC_ID, STATE)])
        partition = broker.partition(TP)
        for producer_id in (1, 2, 3):
            records = batch(b"v", producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
            partition.log.append_as_leader(records, leader_epoch=5)
        for producer_id, kind in ((2, ControlType.ABORT), (1, ControlType.COMMIT)):
            records = marker(kind, producer_id=producer_id)
            partition.log.append_as_leader(records, leader_epoch=5, origin=AppendOrigin.COORDINATOR)
        partition.log.high_watermark = partition.log.log_end_offset
        committed = await fetch(broker, 0, read_committed=True)
        assert committed.last_stable_offset == 2
        assert committed.records is not None
        assert list(committed.aborted_transactions or ()) == [(2, 1)]
        everything = await fetch(broker, 0)
        assert everything.records is not None
        assert everything.records.length > committed.records.length
        assert everything.aborted_transactions is None
        # A transaction index that cannot be read is reported as an error.
        partition.log.active_segment.write_indexes()
        partition.log.active_segment.indexes_written = True
        partition.log.active_segment.release()
        index = SystemFiles().open(partition.log.active_segment.path(".txnindex"))
        content = index.pread(index.size(), 0)
        index.truncate(len(content) - 1)
        assert (await fetch(broker, 0, read_committed=True)).error_code == CorruptMessageError.code
        assert (await fetch(broker, 0)).error_code == 0
        index.pwritev((content,), 0)
        index.close()
        await cluster.close()

    run_virtual(main())
