"""ElectLeaders (KIP-183, KIP-460): elections on request, answered when the elected leaders are known.

The controller in this process elects the leaders. The handler then waits until this broker's metadata image has the new
leaders, or until the timeout of the request.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, Protocol

from odradek.base.errors import NONE, ElectionNotNeededError, InvalidRequestError, ProtocolError, RequestTimedOutError
from odradek.base.ports import Clock
from odradek.base.types import TopicPartition
from odradek.cluster import MetadataCache
from odradek.controller.elections.candidates import ElectionKind
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.messages.replicas import ElectLeadersRequest, ElectLeadersRequestTopicPartitions
from odradek.server.admin.image_waits import LeadersWait
from odradek.server.dispatch import Handler, RequestContext, route
from odradek.timer.purgatory import Purgatory

ElectionResult = int | ProtocolError
"""The elected leader, or the error if none was elected."""

_TIMED_OUT: Final = RequestTimedOutError(
    "A leader was elected, but this broker did not learn of it within the timeout of the request."
)


class Elector(Protocol):
    """The port of this handler to the controller in this process."""

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None, kind: ElectionKind
    ) -> dict[TopicPartition, ElectionResult]:
        """Elect leaders of these partitions, or of all partitions for None. Raises `NotControllerError` if another
        broker is the controller."""
        ...


class ElectionHandlers:
    """The handler of ElectLeaders."""

    def __init__(self, *, controller: Elector, view: MetadataCache, clock: Clock) -> None:
        """`view` holds the metadata image."""
        self._controller = controller
        self._view = view
        self._waits: Purgatory[LeadersWait] = Purgatory(clock, "ElectLeader")
        self._clock = clock

    @property
    def purgatory(self) -> Purgatory[LeadersWait]:
        """The requests that wait for leaders, for metrics."""
        return self._waits

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """The handlers by API."""
        return dict([route(ElectLeadersRequest, self.elect_leaders)])

    def image_changed(self, partitions: Iterable[TopicPartition]) -> None:
        """Check the waits for these partitions. Called after each UpdateMetadata."""
        for partition in partitions:
            self._waits.check(partition)

    def close(self) -> None:
        """End all waits. Idempotent."""
        self._waits.close()

    async def elect_leaders(self, context: RequestContext, request: ElectLeadersRequest) -> Message:
        """Handle ElectLeaders for the requested partitions, or for all."""
        deadline_ms = self._clock.monotonic_ms() + request.timeout_ms
        number = request.election_type
        if number not in list(ElectionKind):
            raise InvalidRequestError(f"Election type {number} does not exist.")
        wanted = None if request.topic_partitions is None else list(_named(request.topic_partitions))
        outcomes = await self._controller.elect_leaders(wanted, ElectionKind(number))
        elected = {partition: leader for partition, leader in outcomes.items() if not isinstance(leader, ProtocolError)}
        missing = await self._wait(elected, max(0.0, deadline_ms - self._clock.monotonic_ms()))
        errors: dict[TopicPartition, ProtocolError | None] = {
            partition: outcome if isinstance(outcome, ProtocolError) else _TIMED_OUT if partition in missing else None
            for partition, outcome in outcomes.items()
        }
        if wanted is None:
            # If a client requests all partitions, the response has those that needed an election.
            errors = {part: error for part, error in errors.items() if not isinstance(error, ElectionNotNeededError)}
        return {"throttle_time_ms": 0, "error_code": NONE, "replica_election_results": _results(errors)}

    async def _wait(self, leaders: Mapping[TopicPartition, int], timeout_ms: float) -> Collection[TopicPartition]:
        if not leaders:
            return ()
        wait = LeadersWait(self._view, leaders, timeout_ms)
        self._waits.try_complete_else_watch(wait, list(leaders))
        try:
            return await wait.missing
        finally:
            wait.complete()  # if the handler was cancelled, nothing waits for it any more


def _named(topics: Iterable[ElectLeadersRequestTopicPartitions]) -> Iterator[TopicPartition]:
    for topic in topics:
        for number in topic.partitions:
            yield TopicPartition(topic.topic, number)


def _results(errors: Mapping[TopicPartition, ProtocolError | None]) -> list[dict[str, object]]:
    topics: dict[str, list[dict[str, object]]] = {}
    for partition, error in errors.items():
        topics.setdefault(partition.topic, []).append(
            {
                "partition_id": partition.partition,
                "error_code": NONE if error is None else error.code,
                "error_message": None if error is None else str(error),
            }
        )
    return [{"topic": topic, "partition_result": results} for topic, results in topics.items()]
