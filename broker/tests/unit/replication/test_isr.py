"""The in-sync set's state machine: every step of the table, and none beside it."""

from __future__ import annotations

import pytest

from odradek.replication.isr import Event, InSyncSet, Phase, Refusal, refusal_of

COMMITTED = InSyncSet((1, 2), (1, 2))
EXPANDING = InSyncSet((1, 2), (1, 2, 3), Phase.EXPANDING)
SHRINKING = InSyncSet((1, 2), (1,), Phase.SHRINKING)


@pytest.mark.parametrize(
    ("before", "event", "members", "after"),
    [
        (COMMITTED, Event.EXPAND, (1, 2, 3), EXPANDING),
        (COMMITTED, Event.SHRINK, (1,), SHRINKING),
        (COMMITTED, Event.COMMIT, (2,), InSyncSet((2,), (2,))),
        (EXPANDING, Event.COMMIT, (1, 2, 3), InSyncSet((1, 2, 3), (1, 2, 3))),
        (EXPANDING, Event.REJECT, (), COMMITTED),
        (SHRINKING, Event.COMMIT, (1,), InSyncSet((1,), (1,))),
        (SHRINKING, Event.REJECT, (), COMMITTED),
    ],
)
def test_steps_of_the_table(before: InSyncSet, event: Event, members: tuple[int, ...], after: InSyncSet) -> None:
    assert before.step(event, members) == after


@pytest.mark.parametrize("event", [Event.EXPAND, Event.SHRINK])
@pytest.mark.parametrize("state", [EXPANDING, SHRINKING])
def test_one_change_at_a_time(state: InSyncSet, event: Event) -> None:
    with pytest.raises(ValueError, match="not possible"):
        state.step(event, (1, 2, 3, 4))


@pytest.mark.parametrize(
    ("event", "members"), [(Event.EXPAND, (1, 2)), (Event.EXPAND, (1, 3)), (Event.SHRINK, (1, 2)), (Event.SHRINK, (3,))]
)
def test_a_proposal_must_be_what_it_says(event: Event, members: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="does not"):
        COMMITTED.step(event, members)


def test_nothing_to_reject_while_nothing_is_pending() -> None:
    with pytest.raises(ValueError, match="not possible"):
        COMMITTED.step(Event.REJECT)


def test_the_maximal_set_is_the_larger_one() -> None:
    assert COMMITTED.maximal == (1, 2)
    assert EXPANDING.maximal == (1, 2, 3)
    assert SHRINKING.maximal == (1, 2)


@pytest.mark.parametrize(
    ("code", "refusal"),
    [
        (55, Refusal.REVERT),
        (107, Refusal.REVERT),
        (3, Refusal.WAIT),
        (42, Refusal.WAIT),
        (74, Refusal.WAIT),
        (95, Refusal.WAIT),
        (100, Refusal.WAIT),
        (108, Refusal.WAIT),
        (41, Refusal.RETRY),
        (7, Refusal.RETRY),
        (-1, Refusal.RETRY),
    ],
)
def test_what_follows_an_error_code(code: int, refusal: Refusal) -> None:
    assert refusal_of(code) is refusal
