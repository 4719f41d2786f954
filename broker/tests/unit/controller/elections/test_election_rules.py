"""Tables of elections: the leader and the ISR, or the obstacle."""

from __future__ import annotations

import pytest

from odradek.controller.elections.election_rules import (
    Elected,
    Obstacle,
    elect_first,
    elect_for_shutdown,
    elect_offline,
    elect_preferred,
    elect_reassigned,
)
from odradek.zk.layout import PartitionState


def outcome(result: Elected | Obstacle) -> object:
    return (result.leader, result.isr, result.unclean) if isinstance(result, Elected) else result


def test_first_leader() -> None:
    assert elect_first((2, 1), 7) == PartitionState(leader=2, leader_epoch=0, isr=(2, 1), controller_epoch=7)
    assert elect_first((), 7) is Obstacle.NO_LIVE_REPLICA


@pytest.mark.parametrize(
    ("assignment", "isr", "live", "unclean", "expected"),
    [
        ((1, 2, 3), (1, 2, 3), {2, 3}, False, (2, (2, 3), False)),
        ((1, 2, 3), (3, 1), {2, 3}, False, (3, (3,), False)),
        ((3, 2, 1), (1, 2), {1, 2, 3}, False, (2, (1, 2), False)),
        ((1, 2, 3), (1,), {2, 3}, False, Obstacle.NO_IN_SYNC_REPLICA),
        ((1, 2, 3), (1,), {2, 3}, True, (2, (2,), True)),
        ((1, 2, 3), (1, 3), {2, 3}, True, (3, (3,), False)),
        ((1, 2, 3), (1,), set(), True, Obstacle.NO_LIVE_REPLICA),
        ((1, 2), (1, 9), {9}, True, Obstacle.NO_LIVE_REPLICA),
    ],
)
def test_offline(
    assignment: tuple[int, ...], isr: tuple[int, ...], live: set[int], unclean: bool, expected: object
) -> None:
    assert outcome(elect_offline(assignment, isr, live, unclean=unclean)) == expected


@pytest.mark.parametrize(
    ("isr", "live", "leader", "expected"),
    [
        ((2, 1), {1, 2}, 2, (1, (2, 1), False)),
        ((2, 1), {1, 2}, 1, Obstacle.NOT_NEEDED),
        ((2,), {1, 2}, 2, Obstacle.PREFERRED_NOT_READY),
        ((2, 1), {2}, 2, Obstacle.PREFERRED_NOT_READY),
    ],
)
def test_preferred(isr: tuple[int, ...], live: set[int], leader: int, expected: object) -> None:
    assert outcome(elect_preferred((1, 2), isr, live, leader=leader)) == expected


def test_reassigned() -> None:
    assert outcome(elect_reassigned((4, 5), (1, 5), {1, 4, 5})) == (5, (1, 5), False)
    assert elect_reassigned((4, 5), (1, 5), {1, 4}) is Obstacle.NO_IN_SYNC_REPLICA


@pytest.mark.parametrize(
    ("isr", "live", "shutting_down", "expected"),
    [
        ((1, 2, 3), {1, 2, 3}, {1}, (2, (2, 3), False)),
        ((1, 2, 3), {1, 2, 3}, {1, 2}, (3, (3,), False)),
        ((1, 3), {1, 2}, {1}, Obstacle.NO_IN_SYNC_REPLICA),
        ((1,), {1, 2, 3}, {1}, Obstacle.NO_IN_SYNC_REPLICA),
    ],
)
def test_controlled_shutdown(isr: tuple[int, ...], live: set[int], shutting_down: set[int], expected: object) -> None:
    assert outcome(elect_for_shutdown((1, 2, 3), isr, live, shutting_down=shutting_down)) == expected


def test_a_reign_begins_with_the_next_epoch_and_recovery_is_not_forgotten() -> None:
    current = PartitionState(leader=1, leader_epoch=4, isr=(1,), controller_epoch=1, recovering=True)
    same = Elected(leader=1, isr=(1,), reason="").next_state(current, 9)
    assert (same.leader_epoch, same.controller_epoch, same.recovering) == (5, 9, True)
    assert not Elected(leader=2, isr=(2,), reason="").next_state(current, 9).recovering
    assert Elected(leader=2, isr=(2,), unclean=True, reason="").next_state(current, 9).recovering
