"""This broker's requests to the controller: ISR changes (AlterPartition) and ControlledShutdown.

`replication` proposes ISR changes with `alter_isr`; proposals that arrive while a request is in flight are sent
together in the next one. The metadata image names the controller. Its channel is opened when needed, and closed when it
fails or another broker becomes the controller. Errors are protocol errors, and the callers retry.

Invariant: every proposal ends with the committed state, an error, or its cancellation by `close`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from odradek.base.config import BrokerConfig
from odradek.base.errors import (
    NotControllerError,
    OdradekError,
    ProtocolError,
    UnknownServerError,
    error_for,
)
from odradek.base.ports import Clock
from odradek.base.types import ZERO_UUID, Endpoint, TopicPartition
from odradek.cluster import MetadataCache
from odradek.network.channel import Channel
from odradek.protocol.codec import Message, Response
from odradek.protocol.messages.internal import (
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    ControlledShutdownResponse,
)
from odradek.replication.replica_requests import CommittedIsr

logger = logging.getLogger(__name__)

NAMED_TOPICS_UNTIL: Final = 1
"""Last AlterPartition version with topic names; later ones have topic ids (KIP-841)."""
UNKNOWN_BROKER_EPOCH: Final = -1
"""Broker epoch of each member of a proposed ISR. It is unknown, as in Kafka in ZooKeeper mode."""

Connect = Callable[[Endpoint], Awaitable[Channel]]
"""Opens a channel and negotiates versions."""


class _Proposal(NamedTuple):
    topic_partition: TopicPartition
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    outcome: asyncio.Future[CommittedIsr]


class ControllerLink:
    """Sends requests to the current controller. Implements `IsrWriter`."""

    def __init__(
        self, *, broker_id: int, broker_epoch: Callable[[], int], view: MetadataCache, listener: str, connect: Connect
    ) -> None:
        """`broker_epoch` returns the epoch of this broker's current registration."""
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._view = view
        self._listener = listener
        self._connect = connect
        self._channel: Channel | None = None
        self._controller_id = -1
        self._connecting = asyncio.Lock()
        self._waiting: list[_Proposal] = []
        self._sender: asyncio.Task[None] | None = None

    async def alter_isr(
        self, topic_partition: TopicPartition, leader_epoch: int, new_isr: tuple[int, ...], partition_epoch: int
    ) -> CommittedIsr:
        """Commit an ISR change. Returns the committed state; raises the `ProtocolError` of the request or the
        partition."""
        outcome: asyncio.Future[CommittedIsr] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Proposal(topic_partition, leader_epoch, new_isr, partition_epoch, outcome))
        if self._sender is None:
            self._sender = asyncio.get_running_loop().create_task(self._send_waiting(), name="alter-partition")
        return await outcome

    async def controlled_shutdown(self) -> list[TopicPartition]:
        """Ask the controller to move leadership away from this broker. Returns the partitions that it still leads."""
        message: Message = {"broker_id": self._broker_id, "broker_epoch": self._broker_epoch()}
        response = await self._ask(ControlledShutdownResponse, message)
        if response.error_code:
            raise error_for(response.error_code, "the controller refused the controlled shutdown")
        return [TopicPartition(item.topic_name, item.partition_index) for item in response.remaining_partitions]

    async def hand_over(self, config: BrokerConfig, clock: Clock) -> None:
        """Request a controlled shutdown up to `controlled.shutdown.max.retries` times, until this broker leads nothing.

        The result is logged: the broker stops in any case.
        """
        if not self._view.image.brokers.keys() - {self._broker_id}:
            logger.info("controlled shutdown: no other broker is alive, so no leadership is moved")
            return
        for attempt in range(1, config.controlled_shutdown_max_retries + 1):
            try:
                remaining = await self.controlled_shutdown()
                if not remaining:
                    logger.info("controlled shutdown: every partition that this broker led has another leader")
                    return
                logger.info(
                    "controlled shutdown: %d partitions have no other replica that can lead them yet", len(remaining)
                )
            except OdradekError as error:
                logger.warning("controlled shutdown: attempt %d failed: %s", attempt, error)
            if attempt < config.controlled_shutdown_max_retries:
                await clock.sleep_ms(config.controlled_shutdown_retry_backoff_ms)
        logger.warning("controlled shutdown: the broker stops although it still leads partitions")

    async def close(self) -> None:
        """Cancel all proposals and close the connection. Idempotent."""
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)
        waiting, self._waiting = self._waiting, []
        for proposal in waiting:
            proposal.outcome.cancel()
        await self._drop()

    async def _send_waiting(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                try:
                    await self._send(batch)
                except ProtocolError as error:
                    _fail(batch, error)
                except asyncio.CancelledError:
                    for proposal in batch:
                        proposal.outcome.cancel()
                    raise
                except Exception:
                    # A bug. Every proposal gets an error: one that never ends would block the ISR of its partition.
                    logger.exception("%d ISR changes could not be proposed", len(batch))
                    _fail(batch, UnknownServerError("the proposal failed; see the log of the broker"))
        finally:
            self._sender = None

    async def _send(self, batch: list[_Proposal]) -> None:
        image = self._view.image
        topics: dict[str, list[_Proposal]] = {}
        for proposal in batch:
            topics.setdefault(proposal.topic_partition.topic, []).append(proposal)
        ids = {name: image.topic_id(name) for name in topics}
        message: Message = {
            "broker_id": self._broker_id,
            "broker_epoch": self._broker_epoch(),
            "topics": [
                {
                    "topic_name": name,
                    "topic_id": ids[name],
                    "partitions": [_partition_message(item) for item in proposals],
                }
                for name, proposals in topics.items()
            ],
        }
        # Topics have no ids with an inter-broker protocol below 2.8: send their names.
        highest = NAMED_TOPICS_UNTIL if ZERO_UUID in ids.values() else None
        response = await self._ask(AlterPartitionResponse, message, highest=highest)
        if response.error_code:
            raise error_for(response.error_code, "the controller refused AlterPartition")
        _settle_all(topics, {topic_id: name for name, topic_id in ids.items()}, response)

    async def _ask(self, expected: type[Response], message: Message, *, highest: int | None = None) -> Response:
        channel = await self._current_channel()
        version = channel.pick(expected.API_KEY)
        return await channel.ask(expected, version if highest is None else min(version, highest), message)

    async def _current_channel(self) -> Channel:
        # One request at a time: otherwise two could each open a channel, and one would be lost.
        async with self._connecting:
            image = self._view.image
            channel = self._channel
            if channel is not None and (image.controller_id != self._controller_id or not channel.is_open):
                await self._drop()
            if self._channel is None:
                broker = image.brokers.get(image.controller_id)
                endpoint = None if broker is None else broker.endpoint(self._listener)
                if endpoint is None:
                    raise NotControllerError("no controller is known")
                self._channel = await self._connect(endpoint)
                self._controller_id = image.controller_id
            return self._channel

    async def _drop(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()


def _partition_message(proposal: _Proposal) -> dict[str, object]:
    return {
        "partition_index": proposal.topic_partition.partition,
        "leader_epoch": proposal.leader_epoch,
        "new_isr": proposal.isr,
        "new_isr_with_epochs": [{"broker_id": member, "broker_epoch": UNKNOWN_BROKER_EPOCH} for member in proposal.isr],
        "partition_epoch": proposal.partition_epoch,
    }


def _fail(proposals: Iterable[_Proposal], error: ProtocolError) -> None:
    for proposal in proposals:
        if not proposal.outcome.done():
            proposal.outcome.set_exception(error)


def _settle_all(
    topics: Mapping[str, list[_Proposal]], names: Mapping[UUID, str], response: AlterPartitionResponse
) -> None:
    """Complete each proposal from the response. It has topic names in versions 0 and 1, topic ids in later ones."""
    answers: dict[tuple[str | None, int], AlterPartitionResponsePartitionData] = {}
    for topic in response.topics:
        name = topic.topic_name or names.get(topic.topic_id)
        answers |= {(name, partition.partition_index): partition for partition in topic.partitions}
    for name, proposals in topics.items():
        for proposal in proposals:
            _settle(proposal, answers.get((name, proposal.topic_partition.partition)))


def _settle(proposal: _Proposal, answer: AlterPartitionResponsePartitionData | None) -> None:
    if proposal.outcome.done():
        return
    if answer is None:
        proposal.outcome.set_exception(error_for(-1, "the response of the controller does not contain the partition"))
    elif answer.error_code:
        error = error_for(answer.error_code, f"the controller refused the ISR of {proposal.topic_partition}")
        proposal.outcome.set_exception(error)
    else:
        proposal.outcome.set_result(
            CommittedIsr(
                leader=answer.leader_id,
                leader_epoch=answer.leader_epoch,
                isr=answer.isr,
                partition_epoch=answer.partition_epoch,
            )
        )
