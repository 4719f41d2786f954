"""The follower's fetch session: a leader that applies each step knows the followed partitions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.base.types import TopicPartition
from odradek.log.flush import NO_LIMIT
from odradek.protocol.hotpath import FetchEntry
from odradek.replication.sessions import follower_session as leader_session
from odradek.replication.sessions.follower_session import MOST_ADDED, Followed, LeaderSession, SessionStep

TOPIC_ID = UUID(int=7)
SESSION_NOT_FOUND = 70
SESSION = 9


def followed(number: int, end: int = 0) -> Followed:
    log = SimpleNamespace(
        topic_id=TOPIC_ID, log_end_offset=end, latest_epoch=1, log_start_offset=0, durable_limit=NO_LIMIT, writing=None
    )
    partition: Any = SimpleNamespace(topic_partition=TopicPartition("t", number), leader_epoch=1, log=log)
    return Followed(partition)


class Leader:
    """The leader's side of the session, which applies each step."""

    def __init__(self) -> None:
        self.known: dict[int, FetchEntry] = {}
        self.most_added = 0

    def apply(self, step: SessionStep) -> None:
        if step.epoch == 0:
            self.known = {}
        for gone in step.forgotten:
            del self.known[gone.partition]
        before = len(self.known)
        self.known |= {entry.partition: entry for entry in step.entries}
        self.most_added = max(self.most_added, len(self.known) - before)


@pytest.mark.parametrize("by_id", [False, True])
def test_thousands_are_added_a_bounded_number_at_a_time(by_id: bool) -> None:
    session, leader = LeaderSession(1), Leader()
    wanted = [followed(number) for number in range(2 * MOST_ADDED + 1)]
    complete = []
    for _ in range(4):
        step = session.next(wanted, by_id=by_id)
        leader.apply(step)
        session.answered(0, SESSION)
        complete.append((step.is_complete, len(step.entries)))
    assert complete == [(False, MOST_ADDED), (False, MOST_ADDED), (True, 1), (True, 0)]
    assert sorted(leader.known) == list(range(2 * MOST_ADDED + 1))


def test_without_a_session_every_request_lists_all_partitions() -> None:
    session = LeaderSession(1)
    wanted = [followed(number) for number in range(MOST_ADDED + 1)]
    steps = []
    for answered in (0, 0, SESSION, 0):
        step = session.next(wanted, by_id=False)
        session.answered(0, answered)
        steps.append((step.epoch, step.is_complete, len(step.entries)))
    full = (0, True, MOST_ADDED + 1)
    assert steps == [(0, False, MOST_ADDED), full, full, (1, True, 0)]


def test_after_a_failure_all_partitions_are_added_again() -> None:
    session = LeaderSession(1)
    wanted = [followed(number) for number in range(MOST_ADDED + 1)]
    session.next(wanted, by_id=False)
    session.answered(0, SESSION)
    session.next(wanted, by_id=False)
    session.failed()
    step = session.next(wanted, by_id=False)
    assert (step.session_id, step.epoch, step.is_complete, len(step.entries)) == (SESSION, 0, False, MOST_ADDED)


def test_a_partition_that_is_followed_again_is_added_again() -> None:
    """The leader sent the offsets to the previous `Followed`, whose response may have been ignored."""
    session = LeaderSession(1)
    kept, former, present = followed(0), followed(1), followed(1)
    session.next([kept, former], by_id=False)
    session.answered(0, SESSION)
    step = session.next([kept, present], by_id=False)
    assert (step.epoch, step.entries, step.is_complete) == (1, [], False)
    assert [gone.partition for gone in step.forgotten] == [1]
    session.answered(0, SESSION)
    step = session.next([kept, present], by_id=False)
    assert (step.epoch, step.forgotten, step.is_complete) == (2, [], True)
    assert [entry.partition for entry in step.entries] == [1]
    session.answered(0, SESSION)
    assert session.next([kept, present], by_id=False).entries == []


def test_when_all_partitions_are_followed_again_a_full_request_ends_the_session() -> None:
    session = LeaderSession(1)
    session.next([followed(number) for number in range(MOST_ADDED + 1)], by_id=False)
    session.answered(0, SESSION)
    added_again = [followed(number) for number in range(MOST_ADDED + 1)]
    step = session.next(added_again, by_id=False)
    assert (step.session_id, step.epoch, len(step.entries), step.forgotten) == (SESSION, 0, MOST_ADDED, [])
    session.answered(0, SESSION + 1)
    step = session.next(added_again, by_id=False)
    assert (step.session_id, step.epoch, len(step.entries), step.is_complete) == (SESSION + 1, 1, 1, True)


outcomes = st.sampled_from(["session", "session", "session", "no session", "not found", "error", "failed"])
rounds = st.lists(
    st.tuples(st.dictionaries(st.integers(0, 7), st.integers(0, 2)), st.booleans(), outcomes), max_size=12
)


@given(rounds)
def test_a_leader_knows_all_after_a_few_requests_and_never_anything_else(
    played: list[tuple[dict[int, int], bool, str]],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leader_session, "MOST_ADDED", 3)
        session, leader = LeaderSession(1), Leader()
        last: dict[int, int] = {}
        all_followed = [followed(number) for number in range(8)]
        for wanted, by_id, outcome in [*played, *[(dict.fromkeys(range(8), 1), True, "session")] * 4]:
            last = wanted
            for number, end in wanted.items():
                all_followed[number].partition.log.log_end_offset = end  # type: ignore[misc]
            step = session.next([all_followed[number] for number in wanted], by_id=by_id)
            leader.apply(step)
            known = {number: entry.fetch_offset for number, entry in leader.known.items()}
            assert known.items() <= wanted.items()
            assert step.is_complete is (known == wanted)
            if outcome == "failed":
                session.failed()
            else:
                code = {"not found": SESSION_NOT_FOUND, "error": 71}.get(outcome, 0)
                session.answered(code, SESSION if outcome == "session" else 0)
        assert {number: entry.fetch_offset for number, entry in leader.known.items()} == last
