"""Incremental fetch sessions, the broker's side."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import pytest

from odradek.protocol.fetch_sessions import EPOCH_MAX, next_epoch
from odradek.protocol.hotpath import FetchEntry, FetchRequest, ForgottenPartition
from odradek.replication.replica_requests import FetchResult
from odradek.replication.sessions.fetch_session import EVICTION_MS, FetchAnswer, FetchSessions
from odradek_testkit.loop import ManualClock

TOPIC_ID = UUID(int=77)


class Data:
    """Replaces a log slice: only its presence matters here."""

    length = 100


def entry(partition: int, offset: int = 0, *, topic: str | None = "t", topic_id: UUID | None = None) -> FetchEntry:
    return FetchEntry(topic, topic_id, partition, -1, offset, -1, -1, 1 << 20)


def request(
    *entries: FetchEntry,
    session_id: int = 0,
    epoch: int = 0,
    forgotten: tuple[int, ...] = (),
    replica_id: int = -1,
) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        entries=list(entries),
        session_id=session_id,
        session_epoch=epoch,
        replica_id=replica_id,
        forgotten=[ForgottenPartition("t", None, number) for number in forgotten],
    )


IDLE = FetchResult(0, 5, 5, 0)


def fetch(
    sessions: FetchSessions, asked: FetchRequest, results: Mapping[int, FetchResult] | None = None
) -> tuple[FetchAnswer, list[int]]:
    """Read with given results. Returns the answer and the order in which partitions were read."""
    context = sessions.open(asked, lambda _: None, uses_topic_ids=False)
    order = [one.topic_partition.partition for one in context.entries]
    return context.finish([(results or {}).get(number, IDLE) for number in order]), order


def partitions_of(answer: FetchAnswer) -> list[int]:
    return [one.topic_partition.partition for one, _ in answer.partitions]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def sessions(clock: ManualClock) -> FetchSessions:
    return FetchSessions(clock, slots=3)


def established(sessions: FetchSessions, *partitions: int) -> int:
    answer, _ = fetch(sessions, request(*(entry(number) for number in partitions)))
    assert answer.session_id > 0
    return answer.session_id


def test_epochs_never_come_back_to_zero() -> None:
    assert [next_epoch(epoch) for epoch in (0, 1, EPOCH_MAX - 1, EPOCH_MAX, -1)] == [1, 2, EPOCH_MAX, 1, -1]


def test_a_full_request_gets_everything_and_a_session(sessions: FetchSessions) -> None:
    answer, order = fetch(sessions, request(entry(0), entry(1)))
    assert order == partitions_of(answer) == [0, 1]
    assert answer.error_code == 0
    assert len(sessions) == 1


def test_the_final_epoch_makes_no_session_and_ends_one(sessions: FetchSessions) -> None:
    session_id = established(sessions, 0)
    answer, _ = fetch(sessions, request(entry(0), session_id=session_id, epoch=-1))
    assert (answer.session_id, partitions_of(answer), len(sessions)) == (0, [0], 0)


def test_an_incremental_answer_has_only_changes(sessions: FetchSessions) -> None:
    session_id = established(sessions, 0, 1, 2, 3, 4, 5)
    results = {
        0: IDLE,
        1: FetchResult(0, 6, 5, 0),
        2: FetchResult(0, 5, 4, 0),
        3: FetchResult(0, 5, 5, 1),
        4: FetchResult(0, 5, 5, 0, diverging_epoch=(1, 2)),
        5: FetchResult(0, 5, 5, 0, Data()),  # type: ignore[arg-type]
    }
    answer, order = fetch(sessions, request(session_id=session_id, epoch=1), results)
    assert order == [0, 1, 2, 3, 4, 5]
    assert partitions_of(answer) == [1, 2, 3, 4, 5]
    results[4] = IDLE
    answer, _ = fetch(sessions, request(session_id=session_id, epoch=2), results)
    assert partitions_of(answer) == [4, 5]


def test_a_follower_that_had_to_truncate_gets_the_offsets_again(sessions: FetchSessions) -> None:
    """It ignores those in the response that truncates, and without new records they would never be sent again."""
    diverging = {0: FetchResult(0, 5, 5, 0, diverging_epoch=(1, 2))}
    answer, _ = fetch(sessions, request(entry(0)), diverging)
    incremental = request(session_id=answer.session_id, epoch=1)
    assert partitions_of(fetch(sessions, incremental, {0: IDLE})[0]) == [0]
    assert partitions_of(fetch(sessions, request(session_id=answer.session_id, epoch=2), {0: IDLE})[0]) == []


def test_a_follower_in_another_leader_epoch_gets_the_offsets_again(sessions: FetchSessions) -> None:
    """It ignores responses in flight when the epoch changed."""
    session_id = established(sessions, 0, 1)
    other_epoch = entry(0)._replace(current_leader_epoch=3)
    answers = [
        fetch(sessions, request(*asked, session_id=session_id, epoch=epoch))[0]
        for epoch, asked in enumerate([(entry(0, offset=1),), (other_epoch,), (other_epoch,)], start=1)
    ]
    assert [partitions_of(answer) for answer in answers] == [[], [0], []]


def test_errors_are_always_returned_and_offsets_again_after_them(sessions: FetchSessions) -> None:
    session_id = established(sessions, 0)
    for epoch in (1, 2):
        answer, _ = fetch(sessions, request(session_id=session_id, epoch=epoch), {0: FetchResult(6)})
        assert partitions_of(answer) == [0]
    answer, _ = fetch(sessions, request(session_id=session_id, epoch=3))
    assert partitions_of(answer) == [0]
    answer, _ = fetch(sessions, request(session_id=session_id, epoch=4))
    assert partitions_of(answer) == []


def test_partitions_are_added_changed_and_forgotten(sessions: FetchSessions) -> None:
    session_id = established(sessions, 0, 1)
    asked = request(entry(1, offset=9), entry(2, offset=3), session_id=session_id, epoch=1, forgotten=(0,))
    context = sessions.open(asked, lambda _: None, uses_topic_ids=False)
    assert [(one.topic_partition.partition, one.fetch_offset) for one in context.entries] == [(1, 9), (2, 3)]
    assert sessions.partitions == 2


def test_a_session_without_partitions_ends(sessions: FetchSessions) -> None:
    session_id = established(sessions, 0)
    answer, _ = fetch(sessions, request(session_id=session_id, epoch=1, forgotten=(0,)))
    assert (answer.session_id, len(sessions)) == (0, 0)


def test_no_partition_starves_behind_a_busy_one(sessions: FetchSessions) -> None:
    session_id = established(sessions, 0, 1, 2)
    busy = {0: FetchResult(0, 6, 6, 0, Data())}  # type: ignore[arg-type]
    _, order = fetch(sessions, request(session_id=session_id, epoch=1), busy)
    assert order == [0, 1, 2]
    _, order = fetch(sessions, request(session_id=session_id, epoch=2))
    assert order == [1, 2, 0]


@pytest.mark.parametrize(("shift", "epoch", "code"), [(1, 1, 70), (0, 2, 71), (0, 7, 71)])
def test_unknown_sessions_and_epochs(sessions: FetchSessions, shift: int, epoch: int, code: int) -> None:
    session_id = established(sessions, 0)
    answer, order = fetch(sessions, request(session_id=session_id + shift, epoch=epoch))
    assert (answer.error_code, answer.session_id, order, partitions_of(answer)) == (code, 0, [], [])


def test_a_repeated_request_spoils_the_first_ones_answer(sessions: FetchSessions) -> None:
    session_id = established(sessions, 0)
    waiting = sessions.open(request(session_id=session_id, epoch=1), lambda _: None, uses_topic_ids=False)
    fetch(sessions, request(session_id=session_id, epoch=2))
    assert waiting.finish([IDLE]).error_code == 71


def test_topic_ids_are_resolved_when_they_become_known(sessions: FetchSessions) -> None:
    asked = request(entry(0, topic=None, topic_id=TOPIC_ID))
    context = sessions.open(asked, lambda _: None, uses_topic_ids=True)
    assert context.entries == []
    answer = context.finish([])
    assert [result.error_code for _, result in answer.partitions] == [100]
    again = request(session_id=answer.session_id, epoch=1)
    context = sessions.open(again, {TOPIC_ID: "named"}.get, uses_topic_ids=True)
    assert [one.topic_partition for one in context.entries] == [("named", 0)]
    assert [result.error_code for _, result in context.finish([IDLE]).partitions] == [0]


@pytest.mark.parametrize("first", [True, False])
def test_a_session_keeps_to_names_or_to_ids(sessions: FetchSessions, first: bool) -> None:
    asked = request(entry(0, topic=None if first else "t", topic_id=TOPIC_ID if first else None))
    answer = sessions.open(asked, {TOPIC_ID: "t"}.get, uses_topic_ids=first).finish([IDLE])
    other = sessions.open(request(session_id=answer.session_id, epoch=1), {TOPIC_ID: "t"}.get, uses_topic_ids=not first)
    assert other.error_code == 106
    assert other.finish([]).error_code == 106


# Eviction


def test_young_sessions_are_safe_from_consumers(sessions: FetchSessions) -> None:
    for _ in range(3):
        established(sessions, 0)
    answer, _ = fetch(sessions, request(*(entry(number) for number in range(50))))
    assert (answer.session_id, len(partitions_of(answer)), len(sessions)) == (0, 50, 3)
    assert sessions.evictions == 0


def test_followers_evict_the_smallest_consumer(sessions: FetchSessions) -> None:
    large, small, middle = established(sessions, 0, 1, 2), established(sessions, 0), established(sessions, 0, 1)
    answer, _ = fetch(sessions, request(entry(0), replica_id=2))
    assert answer.session_id > 0
    assert sessions.evictions == 1
    codes = {one: fetch(sessions, request(session_id=one, epoch=1))[0].error_code for one in (large, small, middle)}
    assert codes == {large: 0, small: 70, middle: 0}


def test_followers_do_not_evict_each_other_while_young(sessions: FetchSessions) -> None:
    for _ in range(3):
        fetch(sessions, request(entry(0), replica_id=2))
    answer, _ = fetch(sessions, request(entry(0), entry(1), replica_id=3))
    assert answer.session_id == 0


def test_unused_sessions_are_evicted_first(sessions: FetchSessions, clock: ManualClock) -> None:
    stale, fresh, other = established(sessions, 0, 1, 2), established(sessions, 0), established(sessions, 0)
    clock.advance(EVICTION_MS)
    fetch(sessions, request(session_id=fresh, epoch=1))
    fetch(sessions, request(session_id=other, epoch=1))
    clock.advance(1)
    assert established(sessions, 0)
    assert fetch(sessions, request(session_id=stale, epoch=1))[0].error_code == 70
    assert fetch(sessions, request(session_id=fresh, epoch=2))[0].error_code == 0


def test_old_sessions_yield_to_larger_ones(sessions: FetchSessions, clock: ManualClock) -> None:
    ids = [established(sessions, 0, 1) for _ in range(3)]
    clock.advance(EVICTION_MS)
    for one in ids:
        fetch(sessions, request(session_id=one, epoch=1))
    clock.advance(1)
    assert fetch(sessions, request(entry(0)))[0].session_id == 0
    assert fetch(sessions, request(entry(0), entry(1), entry(2)))[0].session_id > 0


def test_without_slots_every_fetch_is_full(clock: ManualClock) -> None:
    answer, _ = fetch(FetchSessions(clock, slots=0), request(entry(0)))
    assert (answer.session_id, partitions_of(answer)) == (0, [0])
