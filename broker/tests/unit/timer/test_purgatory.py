"""The purgatory: completion by condition, timeout or close, exactly once; bounded lists."""

from __future__ import annotations

import pytest

from odradek.timer.purgatory import DelayedOperation, Purgatory
from odradek_testkit.loop import ManualClock


class Waiting(DelayedOperation):
    """An operation that completes when `ready` is set; records its calls."""

    def __init__(self, timeout_ms: float = 1000, *, ready: bool = False) -> None:
        super().__init__(timeout_ms)
        self.ready = ready
        self.events: list[str] = []

    def try_complete(self) -> bool:
        self.events.append("tried")
        return self.ready

    def on_complete(self) -> None:
        self.events.append("completed")

    def on_expire(self) -> None:
        self.events.append("expired")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def purgatory(clock: ManualClock) -> Purgatory[Waiting]:
    return Purgatory(clock, "test", purge_interval=10)


def test_a_satisfied_operation_does_not_wait(clock: ManualClock, purgatory: Purgatory[Waiting]) -> None:
    operation = Waiting(ready=True)
    assert purgatory.try_complete_else_watch(operation, ["a"])
    assert operation.events == ["tried", "completed"]
    assert (purgatory.size, purgatory.watched, clock.pending) == (0, 0, 0)


def test_a_check_of_a_watched_key_completes(clock: ManualClock, purgatory: Purgatory[Waiting]) -> None:
    operation = Waiting()
    assert not purgatory.try_complete_else_watch(operation, ["a", "b"])
    assert purgatory.check("a") == 0
    operation.ready = True
    assert purgatory.check("c") == 0
    assert purgatory.check("b") == 1
    assert purgatory.check("a") == 0
    clock.advance(5000)
    assert operation.events == ["tried", "tried", "tried", "completed"]


def test_what_waits_under_one_key_may_wait_under_another_too(clock: ManualClock, purgatory: Purgatory[Waiting]) -> None:
    waiting, there, done = Waiting(), Waiting(), Waiting()
    purgatory.try_complete_else_watch(waiting, ["a"])
    purgatory.try_complete_else_watch(there, ["b"])
    purgatory.try_complete_else_watch(done, ["a"])
    done.complete()
    for _ in range(2):
        purgatory.watch_too("a", "b")
    purgatory.watch_too("no operation waits for this key", "b")
    assert purgatory.watched == 4  # under a: two, one of them done; under b: two
    waiting.ready = there.ready = True
    assert purgatory.check("b") == 2
    assert purgatory.check("a") == 0
    clock.advance(5000)
    assert waiting.events == there.events == ["tried", "tried", "completed"]
    assert done.events == ["tried", "completed"]
    assert (purgatory.size, purgatory.watched) == (0, 0)


def test_what_waits_under_another_key_too_still_ends_by_time(clock: ManualClock, purgatory: Purgatory[Waiting]) -> None:
    operation = Waiting(timeout_ms=500)
    purgatory.try_complete_else_watch(operation, ["a"])
    purgatory.watch_too("a", "b")
    clock.advance(600)
    assert operation.events == ["tried", "completed", "expired"]
    assert purgatory.check("a") + purgatory.check("b") == 0
    assert (purgatory.size, purgatory.watched) == (0, 0)


def test_time_completes_and_then_expires(clock: ManualClock, purgatory: Purgatory[Waiting]) -> None:
    operation = Waiting(timeout_ms=500)
    purgatory.try_complete_else_watch(operation, ["a"])
    clock.advance(499)
    assert operation.events == ["tried"]
    clock.advance(2)
    assert operation.events == ["tried", "completed", "expired"]
    operation.ready = True
    assert purgatory.check("a") == 0
    assert purgatory.watched == 0


@pytest.mark.parametrize("timeout_ms", [0, -5])
def test_without_time_it_expires_at_once(purgatory: Purgatory[Waiting], timeout_ms: float) -> None:
    operation = Waiting(timeout_ms)
    assert purgatory.try_complete_else_watch(operation, ["a"])
    assert operation.events == ["tried", "completed", "expired"]


def test_an_idle_purgatory_sets_no_timer(clock: ManualClock, purgatory: Purgatory[Waiting]) -> None:
    operation = Waiting(timeout_ms=30_000)
    purgatory.try_complete_else_watch(operation, ["a"])
    assert clock.pending == 1
    operation.ready = True
    purgatory.check("a")
    clock.advance(60_000)
    assert clock.pending == 0


def test_a_sooner_operation_moves_the_timer_forward(clock: ManualClock, purgatory: Purgatory[Waiting]) -> None:
    late, soon = Waiting(timeout_ms=30_000), Waiting(timeout_ms=5)
    purgatory.try_complete_else_watch(late, ["a"])
    purgatory.try_complete_else_watch(soon, ["a"])
    assert clock.pending == 1
    clock.advance(6)
    assert soon.is_completed
    assert not late.is_completed
    clock.advance(30_000)
    assert late.is_completed


def test_completed_operations_leave_other_lists_above_the_threshold(purgatory: Purgatory[Waiting]) -> None:
    for number in range(200):
        operation = Waiting()
        purgatory.try_complete_else_watch(operation, ["hot", f"cold-{number}"])
        operation.ready = True
        assert purgatory.check("hot") == 1
        assert purgatory.watched <= 11
    assert purgatory.size == 0


def test_an_operation_counts_once_however_many_keys_it_has(clock: ManualClock) -> None:
    """A fetch of a thousand partitions leaves 999 entries; only every 1001st causes a purge, as in Kafka."""
    purgatory: Purgatory[Waiting] = Purgatory(clock, "test")
    keys = [f"cold-{number}" for number in range(999)]
    purges = 0
    for completed in range(1, 2003):
        operation = Waiting()
        purgatory.try_complete_else_watch(operation, ["hot", *keys])
        before = len(purgatory._watchers["cold-0"])
        operation.ready = True
        assert purgatory.check("hot") == 1
        left = len(purgatory._watchers.get("cold-0", ()))
        assert left == completed % 1001
        purges += left < before
    assert purges == 2
    assert purgatory.watched == 0


def test_the_check_of_the_last_key_ends_the_count_of_an_operation(purgatory: Purgatory[Waiting]) -> None:
    for _ in range(50):
        operation = Waiting()
        purgatory.try_complete_else_watch(operation, ["a", "b", "c"])
        operation.complete()
        for key in "abc":
            assert purgatory._completed_operations == 1
            assert purgatory.check(key) == 0
        assert (purgatory._completed_operations, purgatory.watched) == (0, 0)


def test_an_operation_that_waits_under_another_key_too_counts_until_both_are_checked(
    purgatory: Purgatory[Waiting],
) -> None:
    operation = Waiting()
    purgatory.try_complete_else_watch(operation, ["a"])
    purgatory.watch_too("a", "b")
    operation.complete()
    for key, count in (("a", 1), ("b", 0)):
        purgatory.check(key)
        assert (purgatory._completed_operations, purgatory.watched) == (count, count)


@pytest.mark.parametrize("keys", [["a"], ["a", "b"]])
def test_a_completion_may_close_the_purgatory(purgatory: Purgatory[Waiting], keys: list[str]) -> None:
    class Closing(Waiting):
        def on_complete(self) -> None:
            purgatory.close()

    first, second = Closing(), Waiting()
    for operation in (first, second):
        purgatory.try_complete_else_watch(operation, keys)
    first.ready = True
    assert purgatory.check("a") == 1
    assert second.events == ["tried", "completed", "expired"]
    assert (purgatory._completed_operations, purgatory.watched, purgatory.size) == (0, 0, 0)


def test_expired_operations_are_swept_too(clock: ManualClock, purgatory: Purgatory[Waiting]) -> None:
    for number in range(50):
        purgatory.try_complete_else_watch(Waiting(timeout_ms=5), [number])
    clock.advance(10)
    assert (purgatory.size, purgatory.watched) == (0, 0)


def test_a_completion_may_add_a_new_operation_under_the_same_key(purgatory: Purgatory[Waiting]) -> None:
    successor, neighbour = Waiting(), Waiting()

    class Chained(Waiting):
        def on_complete(self) -> None:
            purgatory.try_complete_else_watch(successor, ["a"])
            purgatory.check("a")

    first = Chained()
    purgatory.try_complete_else_watch(first, ["a"])
    purgatory.try_complete_else_watch(neighbour, ["a"])
    first.ready = True
    assert purgatory.check("a") == 1
    successor.ready = neighbour.ready = True
    assert purgatory.check("a") == 2


def test_completion_from_outside_counts_once(clock: ManualClock, purgatory: Purgatory[Waiting]) -> None:
    operation = Waiting()
    purgatory.try_complete_else_watch(operation, ["a"])
    assert operation.complete()
    assert not operation.complete()
    assert purgatory.size == 0
    assert purgatory.check("a") == 0
    clock.advance(5000)
    assert operation.events == ["tried", "completed"]


def test_an_operation_with_a_failing_condition_is_completed_and_others_are_not_affected(
    purgatory: Purgatory[Waiting],
) -> None:
    class Broken(Waiting):
        def try_complete(self) -> bool:
            if self.ready:
                raise RuntimeError("broken")
            return False

    broken, neighbour = Broken(), Waiting()
    for operation in (broken, neighbour):
        purgatory.try_complete_else_watch(operation, ["a"])
        operation.ready = True
    assert purgatory.check("a") == 2
    assert broken.events == ["completed"]
    assert neighbour.events[-1] == "completed"


def test_a_failing_completion_does_not_affect_other_operations(
    clock: ManualClock, purgatory: Purgatory[Waiting]
) -> None:
    class Broken(Waiting):
        def on_complete(self) -> None:
            raise RuntimeError("broken")

    broken, neighbour = Broken(timeout_ms=5), Waiting(timeout_ms=5)
    purgatory.try_complete_else_watch(broken, ["a"])
    purgatory.try_complete_else_watch(neighbour, ["a"])
    clock.advance(10)
    assert neighbour.events == ["tried", "completed", "expired"]


def test_closing_expires_everything_in_order_and_later_ones_at_once(
    clock: ManualClock, purgatory: Purgatory[Waiting]
) -> None:
    order: list[float] = []

    class Noting(Waiting):
        def on_expire(self) -> None:
            order.append(self.timeout_ms)

    for timeout_ms in (900, 100, 500):
        purgatory.try_complete_else_watch(Noting(timeout_ms), ["a"])
    purgatory.close()
    purgatory.close()
    assert order == [100, 500, 900]
    assert clock.pending == 0
    late = Noting(700)
    assert purgatory.try_complete_else_watch(late, ["a"])
    assert order[-1] == 700
    assert (purgatory.size, purgatory.watched) == (0, 0)


@pytest.mark.parametrize("later_ms", [1500, 5000, 100_000])
def test_a_wait_may_be_prolonged(clock: ManualClock, purgatory: Purgatory[Waiting], later_ms: int) -> None:
    operation, other = Waiting(), Waiting(2000)
    purgatory.try_complete_else_watch(operation, ["a"])
    purgatory.try_complete_else_watch(other, ["a"])
    clock.advance(500)
    purgatory.restart(operation, later_ms - 500)
    clock.advance(later_ms - 501)
    assert (operation.is_completed, purgatory.size) == (False, 2 if later_ms < 2000 else 1)
    clock.advance(2)
    assert operation.events == ["tried", "completed", "expired"]


def test_a_wait_may_be_shortened(clock: ManualClock, purgatory: Purgatory[Waiting]) -> None:
    operation = Waiting(300_000)
    purgatory.try_complete_else_watch(operation, ["a"])
    clock.advance(1000)
    purgatory.restart(operation, 300_000)
    purgatory.restart(operation, 2000)
    clock.advance(1999)
    assert not operation.is_completed
    clock.advance(2)
    assert operation.is_completed
    purgatory.restart(operation, 5000)
    assert (purgatory.size, clock.pending) == (0, 0)


def test_a_wait_that_is_prolonged_again_and_again_needs_one_timer_for_each_timeout(
    clock: ManualClock, purgatory: Purgatory[Waiting]
) -> None:
    operation = Waiting(10_000)
    purgatory.try_complete_else_watch(operation, ["a"])
    for _ in range(100):
        clock.advance(3000)
        purgatory.restart(operation, 10_000)
        assert (clock.pending, purgatory.size, purgatory.watched) == (1, 1, 1)
    clock.advance(9_999)
    assert not operation.is_completed
    clock.advance(2)
    assert operation.events == ["tried", "completed", "expired"]


def test_a_wait_that_is_due_together_with_a_prolonged_one_is_not_late(
    clock: ManualClock, purgatory: Purgatory[Waiting]
) -> None:
    first, second = Waiting(), Waiting()
    added = Waiting(60_000)
    first.on_expire = lambda: purgatory.try_complete_else_watch(added, ["b"])  # type: ignore[assignment, method-assign]
    purgatory.try_complete_else_watch(first, ["a"])
    purgatory.try_complete_else_watch(second, ["a"])
    purgatory.restart(second, 1500)
    clock.advance(1001)
    assert (first.is_completed, second.is_completed, added.is_completed) == (True, False, False)
    clock.advance(500)
    assert second.is_completed
