"""Transactional Produce requests to a broker in memory, whose verifications the test answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from odradek.base.types import TopicPartition
from odradek.protocol.apis import ApiKey
from odradek.records.checks.validate import AppendOrigin
from odradek.records.formats import iterate_entries
from odradek.records.v2.batch import BatchBuilder, ControlType
from odradek.replication.replica_requests import AppendRequest
from odradek_testkit.logs import marker
from odradek_testkit.server import MemoryServer, Peer
from odradek_testkit.verifying import MemoryVerifier

PID: Final = 7
ID: Final = "my-transactions"
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def batch_of(
    sequence: int, *, producer_id: int = PID, epoch: int = 0, is_transactional: bool = True, value: bytes = b"v"
) -> bytes:
    """Return a batch with one record."""
    builder = BatchBuilder(limit_bytes=1 << 20)
    builder.append(None, value, timestamp_ms=1_700_000_000_000)
    return builder.build(
        producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=is_transactional
    )


class ProduceLab:
    """A server that leads three partitions, and its verifier."""

    def __init__(self, server: MemoryServer, verifier: MemoryVerifier) -> None:
        self.server = server
        self.verifier = verifier

    def send(
        self,
        *parts: tuple[TopicPartition, bytes | None],
        peer: Peer | None = None,
        version: int = 11,
        acks: int = -1,
        transactional_id: str | None = ID,
    ) -> asyncio.Task[dict[TopicPartition, Any]]:
        """Send a request; the result has the partitions of the response."""
        topics = [
            {"name": each.topic, "partition_data": [{"index": each.partition, "records": records}]}
            for each, records in parts
        ]
        message = {"transactional_id": transactional_id, "acks": acks, "timeout_ms": 1000, "topic_data": topics}

        async def ask() -> dict[TopicPartition, Any]:
            answer = await (peer or self.server.peer).ask(ApiKey.PRODUCE, version, message)
            return {
                TopicPartition(topic.name, part.index): part
                for topic in answer.responses
                for part in topic.partition_responses
            }

        return asyncio.ensure_future(ask())

    def end(self, topic_partition: TopicPartition = T0, epoch: int = 0) -> None:
        """Append a marker."""
        records = marker(ControlType.ABORT, producer_id=PID, producer_epoch=epoch)
        request = AppendRequest(-1, 1000, [(topic_partition, records)], AppendOrigin.COORDINATOR)
        self.server.replicas.append(request, lambda results: None)

    def sequences(self, topic_partition: TopicPartition = T0, producer_id: int = PID) -> list[int]:
        """Return the sequences of the batches in the log of a partition."""
        log = self.server.replicas.partition(topic_partition).log
        content = log.read(0, max_bytes=1 << 20).load()
        return [
            header.base_sequence
            for _, header in iterate_entries(content)
            if not header.is_control and header.producer_id == producer_id
        ]

    @property
    def waiting(self) -> int:
        return self.server.data.transactions.waiting


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def code_of(sent: asyncio.Task[dict[TopicPartition, Any]], topic_partition: TopicPartition = T0) -> int:
    """Return the error code of a partition."""
    answer = await sent
    code: int = answer[topic_partition].error_code
    return code


def explore_with(play: Callable[..., None]) -> Callable[..., None]:
    """Return a function that runs a scenario on a new server. No records may wait at its end."""

    def run(scenario: Callable[[ProduceLab], Any], **options: Any) -> None:
        verifier = MemoryVerifier()

        async def main(server: MemoryServer) -> None:
            await server.announce("t", {0: [1], 1: [1], 2: [1]})
            lab = ProduceLab(server, verifier)
            await scenario(lab)
            await settle()
            assert not lab.waiting, "records still wait for a verification"

        play(main, verifier=verifier, **options)

    return run
