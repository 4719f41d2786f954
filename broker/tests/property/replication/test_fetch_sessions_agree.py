"""The two sides of an incremental fetch session.

The leader's session contains the partitions of the follower, and every follower has received its partition's offsets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from odradek.base.types import TopicPartition
from odradek.log.flush import NO_LIMIT
from odradek.protocol.hotpath import FetchRequest
from odradek.replication.replica_requests import FetchResult
from odradek.replication.sessions.fetch_session import FetchSessions
from odradek.replication.sessions.follower_session import Followed, LeaderSession
from odradek_testkit.loop import ManualClock

TOPIC_ID = UUID(int=5)


@dataclass
class Log:
    log_end_offset: int = 0
    log_start_offset: int = 0
    latest_epoch: int = 0
    durable_limit: int = NO_LIMIT
    writing: None = None
    topic_id: UUID = TOPIC_ID


@dataclass
class Replica:
    topic_partition: TopicPartition
    leader_epoch: int = 1
    log: Log = field(default_factory=Log)


NUMBERS = st.integers(0, 2)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("grow"), NUMBERS),
        st.tuples(st.just("reign"), NUMBERS),
        st.tuples(st.just("again"), NUMBERS),
        st.tuples(st.just("drop"), NUMBERS),
        st.tuples(st.just("fetch"), st.booleans()),
        st.tuples(st.just("lost"), st.booleans()),
        st.tuples(st.just("overtaken"), NUMBERS),
        st.tuples(st.just("evicted"), st.just(0)),
    ),
    max_size=60,
)


def renewed(one: Followed, *, epochs: int = 1) -> Followed:
    """Return the same partition in a later leader epoch, or followed again in the same epoch."""
    old = one.partition
    return Followed(Replica(old.topic_partition, old.leader_epoch + epochs, old.log))  # type: ignore[arg-type]


class Pair:
    """Both sides of one session, and which `Followed` have received offsets."""

    def __init__(self, slots: int) -> None:
        self._clock = ManualClock()
        self._slots = slots
        self._leader = FetchSessions(self._clock, slots)
        self._session = LeaderSession(max_bytes=1000)
        self._forgot = False
        self.followed: dict[int, Followed] = {}
        self.received: set[Followed] = set()

    def forget(self) -> None:
        """The leader evicts the session."""
        self._leader = FetchSessions(self._clock, self._slots)
        self._forgot = True

    def fetch(self, *, by_id: bool = False, overtaken: int | None = None, is_lost: bool = False) -> None:
        """Send one request and its answer; the leader epoch of `overtaken` ends in between."""
        wanted = {(number, one.partition.log.log_end_offset, one.leader_epoch) for number, one in self.followed.items()}
        asked_for = dict(self.followed)
        step = self._session.next(asked_for.values(), by_id=by_id)
        asked = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=0,
            entries=step.entries,
            session_id=step.session_id,
            session_epoch=step.epoch,
            forgotten=step.forgotten,
        )
        context = self._leader.open(asked, {TOPIC_ID: "t"}.get, uses_topic_ids=by_id)
        answer = context.finish([FetchResult(0, 1, 1, 0)] * len(context.entries))
        if overtaken in self.followed:
            self.followed[overtaken] = renewed(self.followed[overtaken])
        if is_lost:
            self._session.failed()
        else:
            self._session.answered(answer.error_code, answer.session_id)
        if answer.error_code:
            assert self._forgot  # nothing else may break a session
            assert step.epoch > 0  # a full request is never refused
            self._forgot = False
            return
        self._forgot = False
        seen = {(one.topic_partition.partition, one.fetch_offset, one.current_leader_epoch) for one in context.entries}
        assert seen <= wanted
        assert step.is_complete is (seen == wanted)
        if is_lost:
            return
        self.received |= {asked_for[one.topic_partition.partition] for one, _ in answer.partitions}
        assert not step.is_complete or self.received >= set(asked_for.values())


@given(steps=STEPS, slots=st.sampled_from([1, 0]))
def test_the_leader_reads_the_followers_partitions_and_sends_offsets_to_all(
    steps: list[tuple[str, int]], slots: int
) -> None:
    """A response counts only for the `Followed` of its request: a newer one has not received offsets yet."""
    pair = Pair(slots)
    followed = pair.followed
    for kind, detail in steps:
        if kind == "grow":
            if detail not in followed:
                followed[detail] = Followed(Replica(TopicPartition("t", detail)))  # type: ignore[arg-type]
            followed[detail].partition.log.log_end_offset += 1
        elif kind in ("reign", "again") and detail in followed:
            followed[detail] = renewed(followed[detail], epochs=int(kind == "reign"))
        elif kind == "drop":
            followed.pop(detail, None)
        elif kind == "evicted":
            pair.forget()
        elif kind == "overtaken":
            pair.fetch(overtaken=detail)
        elif kind in ("fetch", "lost"):
            pair.fetch(by_id=bool(detail), is_lost=kind == "lost")
    for _ in range(3):
        pair.fetch()
    assert pair.received >= set(followed.values())
