"""Both sides of a fetch session have the same partitions after every success."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.base.types import TopicPartition
from odradek.protocol.fetch_sessions import EPOCH_MAX, FetchSessionHandler, SessionRequest

PARTITIONS = [TopicPartition("t", number) for number in range(4)]
Offset = int
"""The requested state of a partition, for these tests."""
ID_NOT_FOUND, INVALID_EPOCH = 70, 71

requests = st.dictionaries(st.sampled_from(PARTITIONS), st.integers(0, 3))
outcomes = st.sampled_from(["answered", "answered", "answered", "lost request", "lost answer", "evicted", "refused"])


class Broker:
    """The broker's side of sessions according to KIP-227."""

    def __init__(self) -> None:
        self.sessions: dict[int, tuple[int, dict[TopicPartition, Offset]]] = {}
        self.next_id = 100

    def handle(
        self, request: SessionRequest[TopicPartition, Offset], *, refuse: bool
    ) -> tuple[int, int, dict[TopicPartition, Offset]]:
        """Return error code, session id, and the fetched partitions."""
        if request.epoch == 0:
            self.sessions.pop(request.session_id, None)
            fetched = dict(request.changed)
            if refuse or not fetched:
                return 0, 0, fetched
            self.next_id += 1
            self.sessions[self.next_id] = (1, fetched)
            return 0, self.next_id, fetched
        if request.session_id not in self.sessions:
            return ID_NOT_FOUND, 0, {}
        epoch, held = self.sessions[request.session_id]
        if request.epoch != epoch:
            return INVALID_EPOCH, 0, {}
        held = {p: offset for p, offset in held.items() if p not in request.forgotten} | dict(request.changed)
        self.sessions[request.session_id] = (epoch + 1, held)
        return 0, request.session_id, held


@given(steps=st.lists(st.tuples(requests, outcomes), max_size=30))
def test_both_sides_agree(steps: list[tuple[dict[TopicPartition, Offset], str]]) -> None:
    broker = Broker()
    session = FetchSessionHandler[TopicPartition, Offset]()
    errors = 0
    for wanted, outcome in steps:
        if outcome == "evicted":
            broker.sessions.clear()
        request = session.next_request(wanted)
        if outcome == "lost request":
            session.failed()
            continue
        code, session_id, fetched = broker.handle(request, refuse=outcome == "refused")
        if outcome == "lost answer":
            session.failed()
        elif code:
            session.answered(code, 0)
            errors += 1
        else:
            assert fetched == wanted
            session.answered(0, session_id)
    # Only an eviction can make the broker refuse: after a lost answer the client begins a new session.
    assert errors <= sum(outcome == "evicted" for _, outcome in steps)


def test_the_epoch_wraps_to_one() -> None:
    session = FetchSessionHandler[TopicPartition, Offset]()
    session.next_request({PARTITIONS[0]: 0})
    session.answered(0, 5)
    session._epoch = EPOCH_MAX
    session.answered(0, 5)
    assert session.next_request({}).epoch == 1


def test_only_changes_are_sent() -> None:
    session = FetchSessionHandler[TopicPartition, Offset]()
    first = {PARTITIONS[0]: 0, PARTITIONS[1]: 0}
    assert session.next_request(first).changed == first
    session.answered(0, 5)
    second = {PARTITIONS[0]: 0, PARTITIONS[2]: 9}
    request = session.next_request(second)
    assert request == (5, 1, {PARTITIONS[2]: 9}, {PARTITIONS[1]: 0})
