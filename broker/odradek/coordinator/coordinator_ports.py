"""The ports of the coordinators to the rest of the broker. `app` implements them, and tests have implementations, too.

A coordinator only needs to append records to a partition, to learn whether an append was committed, and to read a whole
partition.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar

from odradek.base.errors import ProtocolError
from odradek.base.types import Offset, TopicPartition

KeyValue = tuple[bytes, bytes | None]
"""A key and a value of a record. Without a value, it is a tombstone."""

Result = TypeVar("Result")
Respond = Callable[[Result | ProtocolError], None]
"""Called exactly once, with the result of an operation or its error."""


class TransactionalWriter(NamedTuple):
    """The producer whose transaction an append belongs to."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    guard: object | None = None
    """Proof for the log that the transaction was verified; see `VerifyTransaction`."""
    adds: bool = False
    """Whether the first write adds a partition to the transaction, as transaction version 2 does (KIP-890). If not, the
    client has added it before."""


class PartitionWriter(Protocol):
    """Appends to a partition that this broker leads."""

    async def append(
        self, topic_partition: TopicPartition, records: bytes, transaction: TransactionalWriter | None = None
    ) -> Offset:
        """Append, and return the offset of the first record when all in-sync replicas have the records (acks=all).

        The local append happens before the first suspension, so that appends are in the order of the calls. The first
        append of a `transaction` fails without a guard; see `VerifyTransaction`. Raises `ProtocolError` if
        nothing was appended, or if it is unknown whether the records will be committed: `RequestTimedOutError` after
        `offsets.commit.timeout.ms`.
        """
        ...


VerifyTransaction = Callable[[TopicPartition, TransactionalWriter], Awaitable[TransactionalWriter]]
"""Returns the transaction with the guard for an append, when its coordinator has confirmed that it is open and includes
the partition, or has added it (KIP-890). A transaction that has records in the partition is not verified again. Raises
the `ProtocolError` of the coordinator."""


class PartitionLogReader(Protocol):
    """Reads a partition that this broker leads from its start."""

    def read(self, topic_partition: TopicPartition) -> AsyncIterator[bytes]:
        """Yield complete batches in order, from the log start to the log end at the time of the call."""
        ...


class RecordLog(Protocol):
    """The log of one coordinator partition, as its state machine uses it."""

    @property
    def leader_epoch(self) -> int:
        """The latest leader epoch in which this broker leads the partition: the epoch of the coordinator."""
        ...

    def append(
        self,
        records: Sequence[KeyValue],
        done: Callable[[Offset | ProtocolError], None],
        transaction: TransactionalWriter | None = None,
    ) -> None:
        """Queue records. `done` is called later, once, with their offset or an error, in the order of the calls.

        The records of one call are appended atomically, as part of the `transaction` if there is one.
        """
        ...


class Shard(Protocol):
    """The state machine of one coordinator partition."""

    def replay(self, records: bytes) -> Iterator[int]:
        """Apply a record set that was read from the log. Yields the number of records after each part."""
        ...

    def on_loaded(self) -> None:
        """Start timers. Called after the log was replayed, before requests are served."""
        ...

    def on_unloaded(self) -> None:
        """Stop timers and answer waiting requests with NOT_COORDINATOR, because another broker leads the partition."""
        ...


ShardT = TypeVar("ShardT", bound=Shard)


class Runtime(Protocol[ShardT]):
    """Keeps a state machine for each partition of a coordinator topic and runs operations on them."""

    def load(self, topic_partition: TopicPartition, epoch: int, make_shard: Callable[[RecordLog], ShardT]) -> None:
        """Start to replay a partition that this broker leads in `epoch`. Ignores older or equal epochs."""
        ...

    def unload(self, topic_partition: TopicPartition) -> None:
        """Drop a partition that this broker no longer leads."""
        ...

    def shard(self, topic_partition: TopicPartition) -> ShardT:
        """Return the loaded state machine. Raises `NotCoordinatorError` or `CoordinatorLoadInProgressError`."""
        ...

    def shards(self) -> Sequence[ShardT]:
        """Return all loaded state machines, by partition."""
        ...

    @property
    def is_loading(self) -> bool:
        """Whether any partition is being replayed."""
        ...

    def call(
        self, topic_partition: TopicPartition, operation: Callable[[ShardT, Respond[Result]], None]
    ) -> Awaitable[Result]:
        """Run an operation immediately and wait for its result. Raises the result if it is an error."""
        ...

    def when_loaded(self, topic_partition: TopicPartition, operation: Callable[[ShardT], None]) -> None:
        """Run an operation on the loaded state machine: now, or when it is loaded. Does nothing if this broker does
        not lead the partition, or loses it before."""
        ...

    async def close(self) -> None:
        """Unload all partitions. Idempotent."""
        ...
