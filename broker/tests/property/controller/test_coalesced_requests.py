"""Coalesced requests have the same effect on a broker as the queued requests that they replace."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from odradek.controller.broker_requests.coalescing import coalesce
from odradek.controller.broker_requests.request_batch import BrokerRequest
from odradek.protocol.apis import ApiKey

MOST = 5


class Model:
    """The replicas of a broker, and its metadata."""

    def __init__(self) -> None:
        self.hosted: dict[int, tuple[int, int]] = {}
        """Generation of the log, leader epoch; a log that was deleted and created again has another generation."""
        self.deletions: dict[int, int] = {}
        self.topic_id = UUID(int=0)
        self.metadata: dict[int, int] = {}

    def take(self, requests: Iterable[BrokerRequest]) -> tuple[object, ...]:
        for request in requests:
            for topic in request.message["topic_states"]:  # type: ignore[attr-defined]
                for state in topic["partition_states"]:
                    self._take(request.api_key, topic.get("topic_id", self.topic_id), state)
        # A log without a role is equivalent to none: the next role creates it.
        roles = {number: role for number, role in self.hosted.items() if role[1] >= 0}
        return roles, self.metadata, self.topic_id

    def _take(self, api_key: ApiKey, topic_id: UUID, state: Any) -> None:
        number = state["partition_index"]
        if api_key is ApiKey.LEADER_AND_ISR:
            generation = self.deletions.get(number, 0)
            known = self.hosted.get(number)
            self.hosted[number] = (known[0] if known else generation, state["leader_epoch"])
        elif api_key is ApiKey.STOP_REPLICA:
            if number in self.hosted:
                self.hosted[number] = (self.hosted[number][0], -1)  # it has no leader to follow
            if state["delete_partition"]:
                self.hosted.pop(number, None)
                self.deletions[number] = 1
        else:
            if topic_id != self.topic_id:
                self.metadata, self.topic_id = {}, topic_id
            if state["leader"] == -2:
                self.metadata.pop(number, None)
            else:
                self.metadata[number] = state["leader"]


numbers = st.integers(0, 2)


@st.composite
def lives(draw: st.DrawFn) -> list[BrokerRequest]:
    """Possible requests of a controller about a topic: epochs grow; it is deleted everywhere before it is recreated."""
    sent: list[BrokerRequest] = []
    topic_id = 1
    for epoch, kind in enumerate(draw(st.lists(st.sampled_from("rrmmsdx"), max_size=25))):
        number = draw(numbers)
        if kind == "r":
            sent.append(_request(ApiKey.LEADER_AND_ISR, topic_id, [_state(number, epoch, is_new=draw(st.booleans()))]))
        elif kind == "m":
            sent.append(_request(ApiKey.UPDATE_METADATA, topic_id, [_state(number, epoch, leader=epoch)]))
        elif kind in "sd":
            sent.append(_request(ApiKey.STOP_REPLICA, topic_id, [_state(number, epoch, delete_partition=kind == "d")]))
        else:
            gone = [_state(each, -2, delete_partition=True) for each in range(3)]
            sent.append(_request(ApiKey.UPDATE_METADATA, topic_id, [_state(each, -2, leader=-2) for each in range(3)]))
            sent.append(_request(ApiKey.STOP_REPLICA, topic_id, gone))
            topic_id += 1
    return sent


def _state(number: int, epoch: int, **fields: object) -> dict[str, object]:
    return {"partition_index": number, "leader_epoch": epoch, **fields}


def _request(api_key: ApiKey, topic_id: int, states: list[dict[str, object]]) -> BrokerRequest:
    topic = {"topic_name": "t", "topic_id": UUID(int=topic_id), "partition_states": states}
    message = {"topic_states": [topic], "live_leaders": [], "live_brokers": []}
    return BrokerRequest(broker=1, broker_epoch=1, api_key=api_key, message=message)


@given(lives())
def test_the_short_way_ends_where_the_long_one_does(sent: list[BrokerRequest]) -> None:
    short = coalesce(sent)
    assert len(short) <= MOST
    assert Model().take(short) == Model().take(sent)
    assert Model().take(coalesce(short)) == Model().take(sent)
