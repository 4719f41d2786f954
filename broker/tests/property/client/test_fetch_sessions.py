"""The client's side of fetch sessions against a broker's: both mean the same partitions after every success."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.base.types import TopicPartition
from odradek.client.consumer.fetch_sessions import FetchSession, PartitionRequest, SessionRequest

PARTITIONS = [TopicPartition("t", number) for number in range(4)]
ID_NOT_FOUND, INVALID_EPOCH = 70, 71

wishes = st.dictionaries(
    st.sampled_from(PARTITIONS), st.builds(PartitionRequest, st.integers(0, 3), st.just(0), st.just(1))
)
outcomes = st.sampled_from(["answered", "answered", "answered", "lost request", "lost answer", "evicted", "refused"])


class Broker:
    """Sessions as KIP-227 has them on the broker's side."""

    def __init__(self) -> None:
        self.sessions: dict[int, tuple[int, dict[TopicPartition, PartitionRequest]]] = {}
        self.next_id = 100

    def handle(
        self, request: SessionRequest, *, refuse: bool
    ) -> tuple[int, int, dict[TopicPartition, PartitionRequest]]:
        """Error code, session id, and what is fetched."""
        if request.session_epoch == 0:
            self.sessions.pop(request.session_id, None)
            fetched = dict(request.partitions)
            if refuse or not fetched:
                return 0, 0, fetched
            self.next_id += 1
            self.sessions[self.next_id] = (1, fetched)
            return 0, self.next_id, fetched
        if request.session_id not in self.sessions:
            return ID_NOT_FOUND, 0, {}
        epoch, held = self.sessions[request.session_id]
        if request.session_epoch != epoch:
            return INVALID_EPOCH, 0, {}
        held = {p: wish for p, wish in held.items() if p not in request.forgotten} | dict(request.partitions)
        self.sessions[request.session_id] = (epoch + 1, held)
        return 0, request.session_id, held


@given(steps=st.lists(st.tuples(wishes, outcomes), max_size=30))
def test_both_sides_agree(steps: list[tuple[dict[TopicPartition, PartitionRequest], str]]) -> None:
    broker = Broker()
    session = FetchSession()
    errors = 0
    for wanted, outcome in steps:
        if outcome == "evicted":
            broker.sessions.clear()
        request = session.next_request(wanted)
        if outcome == "lost request":
            session.failed(-1)
            continue
        code, session_id, fetched = broker.handle(request, refuse=outcome == "refused")
        if outcome == "lost answer":
            session.failed(-1)
        elif code:
            session.failed(code)
            errors += 1
        else:
            assert fetched == wanted
            session.answered(session_id)
            assert session.session_id == session_id
    # Only an eviction can make the broker refuse: after a lost answer the client begins anew by itself.
    assert errors <= sum(outcome == "evicted" for _, outcome in steps)


def test_the_epoch_wraps_to_one() -> None:
    session = FetchSession()
    session.next_request({PARTITIONS[0]: PartitionRequest(0, 0, 1)})
    session.answered(5)
    session._epoch = 2**31 - 1
    session.answered(5)
    assert session.next_request({}).session_epoch == 1


def test_only_changes_are_sent() -> None:
    session = FetchSession()
    first = {PARTITIONS[0]: PartitionRequest(0, 0, 1), PARTITIONS[1]: PartitionRequest(0, 0, 1)}
    assert session.next_request(first).partitions == first
    session.answered(5)
    second = {PARTITIONS[0]: PartitionRequest(0, 0, 1), PARTITIONS[2]: PartitionRequest(9, 0, 1)}
    request = session.next_request(second)
    assert request == (5, 1, {PARTITIONS[2]: PartitionRequest(9, 0, 1)}, (PARTITIONS[1],))
