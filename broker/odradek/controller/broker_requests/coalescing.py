"""Combines the requests that wait for a slow broker.

While a broker does not answer, its requests wait, and the controller continues. Only the last state of each partition
matters, so the waiting requests are replaced by at most five requests. Their size depends on the size of the cluster,
not on the duration of the outage:

        StopReplica      partitions that are deleted and then assigned again
        LeaderAndIsr     the last role of each partition that is not stopped later
        UpdateMetadata   partitions of topics that were deleted and created again with another id and fewer partitions
        UpdateMetadata   the last state of every other partition, the last list of brokers
        StopReplica      partitions whose last state is stopped

Pure. `request_sender` calls it with the requests for one broker epoch, in order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from odradek.base.types import ZERO_UUID, TopicPartition
from odradek.controller.broker_requests.request_batch import EPOCH_DURING_DELETE, LEADER_DURING_DELETE, BrokerRequest
from odradek.protocol.apis import ApiKey

State = Mapping[str, Any]
Entries = dict[TopicPartition, tuple[UUID, State]]


def coalesce(requests: Sequence[BrokerRequest]) -> list[BrokerRequest]:
    """Return requests that have the same effect on the broker as these requests in order."""
    waiting = _Waiting()
    take: dict[ApiKey, Callable[[BrokerRequest], None]] = {
        ApiKey.LEADER_AND_ISR: waiting.take_roles,
        ApiKey.UPDATE_METADATA: waiting.take_metadata,
        ApiKey.STOP_REPLICA: waiting.take_stops,
    }
    for request in requests:
        take[request.api_key](request)
    return list(waiting.requests())


class _Waiting:
    """The last state of each partition in the waiting requests."""

    def __init__(self) -> None:
        self._deleted_before: Entries = {}
        self._roles: Entries = {}
        self._leaders: dict[int, State] = {}
        self._removed_before: Entries = {}
        self._metadata: Entries = {}
        self._metadata_ids: dict[str, UUID] = {}
        self._stops: Entries = {}
        self._last: dict[ApiKey, BrokerRequest] = {}

    def take_roles(self, request: BrokerRequest) -> None:
        self._last[request.api_key] = request
        self._leaders |= {leader["broker_id"]: leader for leader in _listed(request, "live_leaders")}
        for partition, topic_id, state in _states(request):
            stop = self._stops.pop(partition, None)
            if stop is not None and stop[1]["delete_partition"]:
                self._deleted_before[partition] = stop
            before = self._roles.get(partition)
            is_new = state["is_new"] or (before is not None and before[1]["is_new"])
            self._roles[partition] = (topic_id, {**state, "is_new": is_new})

    def take_metadata(self, request: BrokerRequest) -> None:
        self._last[request.api_key] = request
        for partition, topic_id, state in _states(request):
            if self._metadata_ids.setdefault(partition.topic, topic_id) != topic_id:
                self._forget_topic(partition.topic)
                self._metadata_ids[partition.topic] = topic_id
            self._metadata[partition] = (topic_id, state)

    def _forget_topic(self, topic: str) -> None:
        """Drop the states of an earlier topic with the same name, except those of partitions that no longer exist."""
        for partition in [partition for partition in self._metadata if partition.topic == topic]:
            entry = self._metadata.pop(partition)
            if entry[1]["leader"] == LEADER_DURING_DELETE:
                self._removed_before[partition] = entry

    def take_stops(self, request: BrokerRequest) -> None:
        self._last[request.api_key] = request
        for partition, topic_id, state in _states(request):
            self._roles.pop(partition, None)
            before = self._stops.get(partition)
            merged = state if before is None else _merged_stop(before[1], state)
            self._stops[partition] = (topic_id, merged)

    def requests(self) -> Iterator[BrokerRequest]:
        yield from self._request(ApiKey.STOP_REPLICA, self._deleted_before)
        yield from self._request(ApiKey.LEADER_AND_ISR, self._roles, live_leaders=list(self._leaders.values()))
        again = {part: entry for part, entry in self._removed_before.items() if part not in self._metadata}
        yield from self._request(ApiKey.UPDATE_METADATA, again)
        # Sent even without partitions, because the list of brokers may have changed.
        yield from self._request(ApiKey.UPDATE_METADATA, self._metadata, even_empty=True)
        yield from self._request(ApiKey.STOP_REPLICA, self._stops)

    def _request(
        self, api_key: ApiKey, entries: Entries, *, even_empty: bool = False, **fields: object
    ) -> Iterator[BrokerRequest]:
        last = self._last.get(api_key)
        if last is None or not (entries or even_empty):
            return
        deleting = frozenset(part for part, (_, state) in entries.items() if state.get("delete_partition"))
        message = {
            **last.message,
            "topic_states": _by_topic(entries, has_ids=api_key is not ApiKey.STOP_REPLICA),
            **fields,
        }
        yield replace(last, message=message, deleting=deleting, shared=None)


def _merged_stop(before: State, after: State) -> State:
    """Combine two stops: the result deletes if one of them does, and the epoch of a deleted topic overrides any
    other."""
    epochs = (before["leader_epoch"], after["leader_epoch"])
    return {
        **after,
        "leader_epoch": EPOCH_DURING_DELETE if EPOCH_DURING_DELETE in epochs else max(epochs),
        "delete_partition": before["delete_partition"] or after["delete_partition"],
    }


def _listed(request: BrokerRequest, name: str) -> Iterable[State]:
    listed: Any = request.message[name]
    return listed  # type: ignore[no-any-return]


def _states(request: BrokerRequest) -> Iterator[tuple[TopicPartition, UUID, State]]:
    for topic in _listed(request, "topic_states"):
        for state in topic["partition_states"]:
            yield TopicPartition(topic["topic_name"], state["partition_index"]), topic.get("topic_id", ZERO_UUID), state


def _by_topic(entries: Entries, *, has_ids: bool) -> list[dict[str, object]]:
    topics: defaultdict[tuple[str, UUID], list[State]] = defaultdict(list)
    for partition, (topic_id, state) in entries.items():
        topics[partition.topic, topic_id].append(state)
    return [
        {"topic_name": topic, "partition_states": states, **({"topic_id": topic_id} if has_ids else {})}
        for (topic, topic_id), states in topics.items()
    ]
