"""Tests what is computed from a watch of pods: which pods were unavailable, and in which order pods were replaced."""

from __future__ import annotations

from dataclasses import replace

from support.values import Pod
from support.watching import Change, most_away, renewed

POD = Pod(
    name="a",
    namespace="n",
    uid="a1",
    phase="Running",
    ready=True,
    terminating=False,
    node="node1",
    address="",
    restarts=0,
    containers=(),
    labels={},
    annotations={},
)


def seen(name: str, number: int = 1, *, ready: bool = True, terminating: bool = False, gone: bool = False) -> Change:
    return Change(pod=replace(POD, name=name, uid=f"{name}{number}", ready=ready, terminating=terminating), gone=gone)


def roll(name: str) -> list[Change]:
    """The changes that a watch reports when a pod is replaced."""
    return [
        seen(name, terminating=True),
        seen(name, ready=False, terminating=True),
        seen(name, gone=True),
        seen(name, 2, ready=False),
        seen(name, 2),
    ]


def test_restarts_one_after_the_other() -> None:
    changes = [seen("a"), seen("b"), *roll("b"), *roll("a")]

    assert renewed(changes) == ("b", "a")
    assert len(most_away(changes)) == 1


def test_two_away_at_once_are_noticed_however_short_it_was() -> None:
    first, second = roll("a"), roll("b")
    changes = [seen("a"), seen("b"), *first[:4], second[0], first[4], *second[1:]]

    assert most_away(changes) == {"a", "b"}


def test_a_pod_that_only_became_unready_is_away_and_not_renewed() -> None:
    changes = [seen("a"), seen("b"), seen("a", ready=False), seen("a")]

    assert renewed(changes) == ()
    assert most_away(changes) == {"a"}


def test_pods_that_were_never_all_there_are_not_counted_before_they_are() -> None:
    starting = [seen("a", ready=False), seen("b", ready=False), seen("b"), seen("a")]

    assert most_away(starting) == frozenset()
    assert most_away([*starting, seen("b", ready=False)]) == {"b"}
