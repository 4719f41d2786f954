"""The state machine of the ISR: every step of the table, and no other."""

from __future__ import annotations

import pytest

from odradek.replication.isr import FailedProposal, InSyncSet, IsrEvent, Phase, refusal_of

COMMITTED = InSyncSet((1, 2), (1, 2))
EXPANDING = InSyncSet((1, 2), (1, 2, 3), Phase.EXPANDING)
SHRINKING = InSyncSet((1, 2), (1,), Phase.SHRINKING)


@pytest.mark.parametrize(
    ("before", "event", "members", "after"),
    [
        (COMMITTED, IsrEvent.EXPAND, (1, 2, 3), EXPANDING),
        (COMMITTED, IsrEvent.SHRINK, (1,), SHRINKING),
        (COMMITTED, IsrEvent.COMMIT, (2,), InSyncSet((2,), (2,))),
        (EXPANDING, IsrEvent.COMMIT, (1, 2, 3), InSyncSet((1, 2, 3), (1, 2, 3))),
        (EXPANDING, IsrEvent.REJECT, (), COMMITTED),
        (SHRINKING, IsrEvent.COMMIT, (1,), InSyncSet((1,), (1,))),
        (SHRINKING, IsrEvent.REJECT, (), COMMITTED),
    ],
)
def test_steps_of_the_table(before: InSyncSet, event: IsrEvent, members: tuple[int, ...], after: InSyncSet) -> None:
    assert before.step(event, members) == after


@pytest.mark.parametrize("event", [IsrEvent.EXPAND, IsrEvent.SHRINK])
@pytest.mark.parametrize("state", [EXPANDING, SHRINKING])
def test_one_change_at_a_time(state: InSyncSet, event: IsrEvent) -> None:
    with pytest.raises(ValueError, match="not possible"):
        state.step(event, (1, 2, 3, 4))


@pytest.mark.parametrize(
    ("event", "members"),
    [(IsrEvent.EXPAND, (1, 2)), (IsrEvent.EXPAND, (1, 3)), (IsrEvent.SHRINK, (1, 2)), (IsrEvent.SHRINK, (3,))],
)
def test_a_proposal_must_expand_or_shrink_the_set(event: IsrEvent, members: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="does not"):
        COMMITTED.step(event, members)


def test_nothing_to_reject_while_nothing_is_pending() -> None:
    with pytest.raises(ValueError, match="not possible"):
        COMMITTED.step(IsrEvent.REJECT)


def test_the_maximal_set_is_the_larger_one() -> None:
    assert COMMITTED.maximal == (1, 2)
    assert EXPANDING.maximal == (1, 2, 3)
    assert SHRINKING.maximal == (1, 2)


@pytest.mark.parametrize(
    ("code", "refusal"),
    [
        (55, FailedProposal.REVERT),
        (107, FailedProposal.REVERT),
        (3, FailedProposal.WAIT),
        (42, FailedProposal.WAIT),
        (74, FailedProposal.WAIT),
        (95, FailedProposal.WAIT),
        (100, FailedProposal.WAIT),
        (108, FailedProposal.WAIT),
        (41, FailedProposal.RETRY),
        (7, FailedProposal.RETRY),
        (-1, FailedProposal.RETRY),
    ],
)
def test_what_follows_an_error_code(code: int, refusal: FailedProposal) -> None:
    assert refusal_of(code) is refusal
