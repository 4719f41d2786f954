"""The two sides of an incremental fetch session: what the leader remembers is what the follower wants, always."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from odradek.base.types import TopicPartition
from odradek.protocol.hotpath import FetchRequest
from odradek.replication.fetch_session import FetchSessions
from odradek.replication.leader_session import Followed, LeaderSession
from odradek.replication.requests import FetchResult
from odradek.testing.loop import ManualClock

TOPIC_ID = UUID(int=5)


@dataclass
class Log:
    log_end_offset: int = 0
    log_start_offset: int = 0
    latest_epoch: int = 0
    topic_id: UUID = TOPIC_ID


@dataclass
class Replica:
    topic_partition: TopicPartition
    leader_epoch: int = 1
    log: Log = field(default_factory=Log)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("grow"), st.integers(0, 5)),
        st.tuples(st.just("reign"), st.integers(0, 5)),
        st.tuples(st.just("drop"), st.integers(0, 5)),
        st.tuples(st.just("fetch"), st.booleans()),
        st.tuples(st.just("lost"), st.booleans()),
        st.tuples(st.just("evicted"), st.just(0)),
    ),
    max_size=60,
)


@given(steps=STEPS, slots=st.sampled_from([0, 1, 1, 1]))
def test_the_leader_reads_exactly_what_the_follower_wants(steps: list[tuple[str, int]], slots: int) -> None:
    clock = ManualClock()
    leader = FetchSessions(clock, slots)
    session = LeaderSession(max_bytes=1000)
    followed: dict[int, Followed] = {}
    forgot = False
    for kind, detail in steps:
        if kind == "grow":
            if detail not in followed:
                followed[detail] = Followed(Replica(TopicPartition("t", detail)))  # type: ignore[arg-type]
            followed[detail].partition.log.log_end_offset += 1
        elif kind == "reign" and detail in followed:
            old = followed[detail].partition
            followed[detail] = Followed(
                Replica(old.topic_partition, old.leader_epoch + 1, old.log)  # type: ignore[arg-type]
            )
        elif kind == "drop":
            followed.pop(detail, None)
        elif kind == "evicted":
            leader = FetchSessions(clock, slots)
            forgot = True
        elif kind in ("fetch", "lost"):
            by_id = bool(detail)
            step = session.next(followed.values(), by_id=by_id)
            asked = FetchRequest(
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=0,
                entries=step.entries,
                session_id=step.session_id,
                session_epoch=step.epoch,
                forgotten=step.forgotten,
            )
            context = leader.open(asked, {TOPIC_ID: "t"}.get, uses_topic_ids=by_id)
            answer = context.finish([FetchResult(0, 1, 1, 0)] * len(context.entries))
            if not answer.error_code:
                seen = {
                    (one.topic_partition.partition, one.fetch_offset, one.current_leader_epoch)
                    for one in context.entries
                }
                assert seen == {
                    (number, one.partition.log.log_end_offset, one.leader_epoch) for number, one in followed.items()
                }
            else:
                assert forgot  # nothing else may break a session
                assert step.epoch > 0  # a full request is never refused
            forgot = False
            if kind == "lost":
                session.failed()
            else:
                session.answered(answer.error_code, answer.session_id)
