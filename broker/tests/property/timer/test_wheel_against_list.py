"""Compares the timing wheel with a sorted list, over random insertions, removals and advances of the time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.timer.wheel import TimerEntry, TimingWheel


def milliseconds(most: int) -> st.SearchStrategy[float]:
    """Multiples of 1/8, which floats add without error, so that the test can compare exactly."""
    return st.integers(0, most * 8).map(lambda eighths: eighths / 8)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), milliseconds(3000)),
        st.tuples(st.just("remove"), st.integers(0, 50)),
        st.tuples(st.just("advance"), milliseconds(400)),
        st.tuples(st.just("leap"), st.just(0)),
    ),
    max_size=80,
)


@given(
    steps=STEPS,
    tick_ms=st.sampled_from([0.5, 1, 3, 10]),
    wheel_size=st.integers(2, 20),
    start_ms=milliseconds(10**9),
)
def test_every_entry_fires_once_never_early_at_most_a_tick_late(
    steps: list[tuple[str, float]], tick_ms: float, wheel_size: int, start_ms: float
) -> None:
    wheel = TimingWheel(tick_ms, wheel_size, start_ms)
    now_ms = start_ms
    waiting: list[TimerEntry] = []
    for kind, amount in steps:
        if kind == "add":
            entry = TimerEntry(now_ms + amount)
            if wheel.add(entry):
                waiting.append(entry)
            else:
                assert entry.expiration_ms <= now_ms
        elif kind == "remove" and waiting:
            assert waiting.pop(int(amount) % len(waiting)).remove()
        elif kind in ("advance", "leap"):
            previous_ms = now_ms
            wake_ms = wheel.next_expiry_ms()
            now_ms = max(now_ms, wake_ms) if kind == "leap" and wake_ms is not None else now_ms + amount
            expired = wheel.advance(now_ms)
            assert all(entry.expiration_ms <= now_ms for entry in expired)
            assert all(entry.expiration_ms + tick_ms > previous_ms for entry in expired)
            for entry in expired:
                waiting.remove(entry)
            assert all(entry.expiration_ms + tick_ms > now_ms for entry in waiting)
            due = [entry.deadline_tick for entry in expired]
            assert due == sorted(due)
        assert wheel.size == len(waiting)
        wake_ms = wheel.next_expiry_ms()
        assert (wake_ms is None) == (not waiting)
        if waiting:
            assert wake_ms is not None
            assert now_ms < wake_ms < min(entry.expiration_ms for entry in waiting) + tick_ms
    assert set(map(id, wheel.entries())) == set(map(id, waiting))
