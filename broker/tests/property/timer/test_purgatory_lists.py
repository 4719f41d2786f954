"""The purgatory under random use: the count of completed operations is exact, and each operation completes once.

Operations may use the purgatory while they complete, so the steps nest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from odradek.timer.purgatory import DelayedOperation, Purgatory
from odradek_testkit.loop import ManualClock

Step = tuple[Any, ...]

KEYS = st.integers(0, 2)
NUMBERS = st.integers(0, 9)


def adding(steps: st.SearchStrategy[Sequence[Step]]) -> st.SearchStrategy[Step]:
    """Add an operation that executes `steps` when it completes."""
    return st.tuples(st.just("add"), st.lists(KEYS, max_size=5), st.sampled_from([0, 50, 5_000]), steps)


NESTED_STEPS = st.one_of(
    adding(st.just(())),
    st.tuples(st.just("satisfy"), NUMBERS),
    st.tuples(st.just("check"), KEYS),
    st.tuples(st.just("complete"), NUMBERS),
    st.tuples(st.just("watch_too"), KEYS, KEYS),
)
STEPS = st.lists(
    st.one_of(
        NESTED_STEPS,
        adding(st.lists(NESTED_STEPS, max_size=3)),
        st.tuples(st.just("advance"), st.integers(1, 100)),
    ),
    min_size=5,
    max_size=60,
)


class Waiting(DelayedOperation):
    """An operation that completes when `is_satisfied` is set, and then executes further steps."""

    def __init__(self, timeout_ms: float, run: Run, steps: Sequence[Step]) -> None:
        super().__init__(timeout_ms)
        self.is_satisfied = False
        self.keys: set[int] = set()
        self.completions = 0
        self._run = run
        self._steps = steps

    def try_complete(self) -> bool:
        return self.is_satisfied

    def on_complete(self) -> None:
        self.completions += 1
        for step in self._steps:
            self._run.execute(step)


class Run:
    """A purgatory, and the operations that the steps have added."""

    def __init__(self, purge_interval: int) -> None:
        self.clock = ManualClock()
        self.purgatory: Purgatory[Waiting] = Purgatory(self.clock, "test", purge_interval=purge_interval)
        self.operations: list[Waiting] = []

    def execute(self, step: Step) -> None:
        getattr(self, step[0])(*step[1:])

    def add(self, keys: Sequence[int], timeout_ms: float, steps: Sequence[Step]) -> None:
        operation = Waiting(timeout_ms, self, steps)
        self.operations.append(operation)
        if not self.purgatory.try_complete_else_watch(operation, keys):
            operation.keys.update(keys)

    def satisfy(self, number: int) -> None:
        if self.operations:
            self.operations[number % len(self.operations)].is_satisfied = True

    def check(self, key: int) -> None:
        self.purgatory.check(key)

    def complete(self, number: int) -> None:
        if self.operations:
            self.operations[number % len(self.operations)].complete()

    def watch_too(self, key: int, other: int) -> None:
        self.purgatory.watch_too(key, other)

    def advance(self, milliseconds: float) -> None:
        self.clock.advance(milliseconds)

    def completed_in_lists(self) -> int:
        """Count the completed operations in the lists."""
        return len({id(each) for waiting in self.lists.values() for each in waiting if each.is_completed})

    @property
    def lists(self) -> dict[Any, list[Waiting]]:
        return self.purgatory._watchers


@given(steps=STEPS, purge_interval=st.integers(0, 5))
def test_the_count_is_exact_and_each_operation_completes_once(steps: list[Step], purge_interval: int) -> None:
    run = Run(purge_interval)
    for step in steps:
        was_listed = step[0] == "check" and step[1] in run.lists
        run.execute(step)
        completed = run.completed_in_lists()
        assert run.purgatory._completed_operations == completed
        if was_listed:
            assert completed <= purge_interval
        assert run.purgatory.size == sum(not operation.is_completed for operation in run.operations)
        for operation in run.operations:
            assert operation.completions == operation.is_completed
            assert operation.is_completed or all(operation in run.lists[key] for key in operation.keys)

    run.purgatory.close()
    assert all(operation.completions == 1 for operation in run.operations)
    assert (run.purgatory.size, run.purgatory.watched, run.purgatory._completed_operations) == (0, 0, 0)


@given(
    counts=st.lists(st.integers(1, 4), min_size=1, max_size=40),
    purge_interval=st.integers(0, 5),
    is_timeout=st.booleans(),
)
def test_the_lists_are_purged_by_the_number_of_operations(
    counts: list[int], purge_interval: int, is_timeout: bool
) -> None:
    """Each operation has its keys to itself, so a purge is the only way by which its entries are removed."""
    run = Run(purge_interval)
    entries = operations = 0
    for number, count in enumerate(counts):
        hot = [] if is_timeout else ["hot"]
        operation = Waiting(50, run, ())
        run.purgatory.try_complete_else_watch(operation, [*hot, *((number, key) for key in range(count))])
        entries, operations = entries + count, operations + 1
        if is_timeout:
            run.clock.advance(60)
        else:
            operation.is_satisfied = True
            assert run.purgatory.check("hot") == 1
        if operations > purge_interval:
            entries = operations = 0
        assert run.purgatory.watched == entries
