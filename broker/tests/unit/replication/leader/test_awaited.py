"""Which followers are awaited for new partitions, and for how long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.base.types import TopicPartition
from odradek.replication.leader.awaited import AWAITED_MS, AwaitedFollowers
from odradek.replication.sessions.fetch_session import FetchPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Waiting:
    is_completed = False

    def complete(self) -> bool:
        self.is_completed = True
        return True


def asks(*numbers: int, epoch: int = 5) -> list[FetchPartition]:
    return [FetchPartition("t", number, 0, 1, current_leader_epoch=epoch) for number in numbers]


def test_a_follower_is_awaited_until_it_fetches_all_new_partitions() -> None:
    awaited = AwaitedFollowers()
    for partition in (T0, T1):
        awaited.expect(partition, 5, [2, 3], 0)
    assert awaited.fetched(2, [], 1)
    assert awaited.fetched(2, asks(0), 2)
    assert not awaited.fetched(2, asks(1), 3)
    assert awaited.fetched(3, asks(7), 3), "another follower has not fetched"
    assert not awaited.fetched(4, [], 3)


def test_a_fetch_in_the_previous_leader_epoch_does_not_end_the_wait() -> None:
    awaited = AwaitedFollowers()
    awaited.expect(T0, 5, [2], 0)
    assert awaited.fetched(2, asks(0, epoch=4), 1)
    assert not awaited.fetched(2, asks(0, epoch=-1), 1), "old versions do not contain it"


def test_fetches_that_wait_are_to_be_answered_once() -> None:
    awaited = AwaitedFollowers()
    done, first, second, other = Waiting(), Waiting(), Waiting(), Waiting()
    done.is_completed = True
    for fetch in (done, first, second):
        awaited.park(2, fetch)
    awaited.park(3, other)
    assert awaited.expect(T0, 5, [2], 0) == [first, second]
    assert awaited.expect(T1, 5, [2], 0) == []


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 400)), max_size=20))
def test_followers_are_awaited_for_a_limited_time(reigns: list[tuple[int, int]]) -> None:
    """The wait depends only on the last new partition."""
    awaited = AwaitedFollowers()
    now_ms = last_ms = 0.0
    for number, pause_ms in reigns:
        now_ms += pause_ms
        last_ms = now_ms
        awaited.expect(TopicPartition("t", number), 1, [2], now_ms)
    if reigns:
        assert awaited.fetched(2, [], last_ms + AWAITED_MS - 1)
    assert not awaited.fetched(2, [], last_ms + AWAITED_MS)
    assert not awaited.fetched(2, [], last_ms)
