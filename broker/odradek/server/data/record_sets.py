"""Loads the whole record sets of Fetch responses whose records may have to be converted.

`server/data/produce_and_fetch` uses it for Fetch versions below 10. Records in memory are copied at once. Others are
read on the read threads of their directories, for at most `COLD_WAIT_MS`, so that a disk that does not answer does not
hold up the partitions on other disks: a partition that is late is answered without records, and the client fetches it
again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from odradek.base.errors import KafkaStorageError, NotLeaderOrFollowerError, ProtocolError, StorageError
from odradek.base.ports import Buffer
from odradek.base.tasks import TaskOwner
from odradek.base.types import TopicPartition
from odradek.log.values import LogSlice
from odradek.replication.leader.cold_reads import COLD_WAIT_MS
from odradek.replication.replica_manager import ReplicaManager
from odradek.replication.replica_requests import FetchResult
from odradek.replication.sessions.fetch_session import FetchPartition

_NO_RECORDS: Final = b""


class LoadedRecords(NamedTuple):
    """The result of one partition and its records; both are changed if the records could not be loaded."""

    entry: FetchPartition
    result: FetchResult
    records: Buffer


Done = Callable[[Sequence[LoadedRecords]], None]


class RecordSets:
    """Loads record sets of the partitions that one broker hosts."""

    def __init__(
        self, replicas: ReplicaManager, cannot_be_read: Callable[[TopicPartition, StorageError], None]
    ) -> None:
        """`cannot_be_read` takes a partition offline after a failed read."""
        self._replicas: Final = replicas
        self._cannot_be_read: Final = cannot_be_read
        self._tasks: Final = TaskOwner()

    def load(self, told: Sequence[tuple[FetchPartition, FetchResult]], done: Done) -> None:
        """Call `done` with the records of each partition, in the same order; at once if all are in memory."""
        loaded = [LoadedRecords(entry, result, _NO_RECORDS) for entry, result in told]
        cold: dict[int, LogSlice] = {}
        for index, (entry, result) in enumerate(told):
            found = result.records
            if found is None or not found.length:
                continue
            try:
                data = found.file.pread_now(found.length, found.position)
            except StorageError as error:
                loaded[index] = self._failed(entry, error)
                continue
            if data is None:
                cold[index] = found
            else:
                loaded[index] = LoadedRecords(entry, result, data)
        if cold:
            self._tasks.spawn(self._load_cold(loaded, cold, done), name="fetch-load")
        else:
            done(loaded)

    async def _load_cold(self, loaded: list[LoadedRecords], cold: dict[int, LogSlice], done: Done) -> None:
        reads = {
            index: self._tasks.spawn(self._read(loaded[index], found), name="fetch-read")
            for index, found in cold.items()
        }
        await asyncio.wait(reads.values(), timeout=COLD_WAIT_MS / 1000)
        for index, read in reads.items():
            entry, result, _ = loaded[index]
            if read.done():
                loaded[index] = read.result()
            else:
                loaded[index] = LoadedRecords(entry, result._replace(records=None), _NO_RECORDS)
        done(loaded)

    async def _read(self, before: LoadedRecords, found: LogSlice) -> LoadedRecords:
        entry, result, _ = before
        topic_partition = entry.topic_partition
        try:
            partition = self._replicas.partition(topic_partition)
            log, generation = partition.log, partition.log.generation
            data = await self._replicas.lookups.load(log, found)
        except StorageError as error:
            return self._failed(entry, error)
        except ProtocolError as error:
            return LoadedRecords(entry, FetchResult(error.code), _NO_RECORDS)
        if log.generation != generation or len(data) != found.length:
            # Only a follower truncates: this broker has lost the leadership.
            return LoadedRecords(entry, FetchResult(NotLeaderOrFollowerError.code), _NO_RECORDS)
        return LoadedRecords(entry, result, data)

    def _failed(self, entry: FetchPartition, error: StorageError) -> LoadedRecords:
        self._cannot_be_read(entry.topic_partition, error)
        return LoadedRecords(entry, FetchResult(KafkaStorageError.code), _NO_RECORDS)

    async def close(self) -> None:
        """Cancel reads in progress. Idempotent."""
        await self._tasks.close()
