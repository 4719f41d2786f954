from __future__ import annotations

import pytest

from odradek.log.epoch_cache import UNDEFINED, EpochCache, EpochEndOffset

LOG_END = 100


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, UNDEFINED),
        (0, EpochEndOffset(0, 10)),
        (1, EpochEndOffset(1, 20)),
        (2, EpochEndOffset(2, 40)),
        (3, EpochEndOffset(2, 40)),
        (5, EpochEndOffset(5, LOG_END)),
        (6, UNDEFINED),
    ],
)
def test_where_an_epoch_ends(asked: int, answer: EpochEndOffset) -> None:
    """Kafka's rules: the latest epoch ends at the log end, a missing one gives the next lower, later ones unknown."""
    cache = EpochCache([(1, 10), (2, 20), (5, 40)])
    assert cache.end_offset_for(asked, LOG_END) == answer


def test_an_empty_cache_knows_nothing() -> None:
    assert EpochCache().end_offset_for(0, 5) == UNDEFINED
    assert EpochCache().latest_epoch == -1
    assert EpochCache().epoch_of(3) == -1


@pytest.mark.parametrize(
    ("assigned", "entries"),
    [
        ((3, 50), [(1, 10), (2, 20), (3, 50)]),
        ((2, 20), [(1, 10), (2, 20)]),
        ((2, 30), [(1, 10), (2, 20)]),
        ((2, 15), [(1, 10), (2, 15)]),
        ((3, 20), [(1, 10), (3, 20)]),
        ((1, 12), [(1, 12)]),
        ((4, 5), [(4, 5)]),
        ((0, 0), [(0, 0)]),
    ],
    ids=["next", "repeat", "later repeat", "earlier start", "same start", "older epoch", "before all", "first of all"],
)
def test_a_later_assignment_wins(assigned: tuple[int, int], entries: list[tuple[int, int]]) -> None:
    cache = EpochCache([(1, 10), (2, 20)])
    before = cache.entries()
    assert cache.assign(*assigned) is (entries != before)
    assert cache.entries() == entries
    assert cache.changed is (entries != before)


def test_negative_values_are_bugs() -> None:
    with pytest.raises(ValueError, match="negative"):
        EpochCache().assign(-1, 0)
    with pytest.raises(ValueError, match="negative"):
        EpochCache().assign(0, -1)


@pytest.mark.parametrize(
    ("end", "entries"),
    [(41, [(1, 10), (2, 20), (5, 40)]), (40, [(1, 10), (2, 20)]), (21, [(1, 10), (2, 20)]), (0, [])],
)
def test_truncation_at_the_end(end: int, entries: list[tuple[int, int]]) -> None:
    cache = EpochCache([(1, 10), (2, 20), (5, 40)])
    cache.truncate_from_end(end)
    assert cache.entries() == entries
    assert cache.changed is (len(entries) < 3)


@pytest.mark.parametrize(
    ("start", "entries"),
    [
        (5, [(1, 10), (2, 20), (5, 40)]),
        (10, [(1, 10), (2, 20), (5, 40)]),
        (15, [(1, 15), (2, 20), (5, 40)]),
        (20, [(2, 20), (5, 40)]),
        (99, [(5, 99)]),
    ],
)
def test_truncation_at_the_start(start: int, entries: list[tuple[int, int]]) -> None:
    cache = EpochCache([(1, 10), (2, 20), (5, 40)])
    cache.truncate_from_start(start)
    assert cache.entries() == entries
    assert cache.changed is (entries != [(1, 10), (2, 20), (5, 40)])


def test_the_epoch_of_an_offset() -> None:
    cache = EpochCache([(1, 10), (4, 20)])
    assert [cache.epoch_of(offset) for offset in (9, 10, 19, 20, 1000)] == [-1, 1, 1, 4, 4]


def test_clear() -> None:
    cache = EpochCache([(1, 10)])
    cache.clear()
    assert cache.entries() == []
    assert cache.changed
