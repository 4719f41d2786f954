"""For all limits, planned ranges cover exactly the requested offsets."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.base.types import TopicPartition
from pyspark_odradek.offsets import OffsetRange, admit, from_spark, parse_json, split, to_json, to_spark

no_deadline = settings(deadline=None)
partitions = st.builds(TopicPartition, st.sampled_from("abc"), st.integers(0, 12))
positions = st.integers(0, 10**6)
limits = st.none() | st.integers(1, 50)


@st.composite
def range_lists(draw: st.DrawFn) -> list[OffsetRange]:
    names = draw(st.lists(partitions, unique=True, max_size=6))
    sizes = st.one_of(st.integers(0, 5), st.integers(0, 500))
    return [OffsetRange(name, start, start + draw(sizes)) for name in sorted(names) for start in [draw(positions)]]


@no_deadline
@given(range_lists(), limits, limits)
def test_pieces_tile_their_ranges(ranges: list[OffsetRange], least: int | None, most: int | None) -> None:
    pieces = split(ranges, min_partitions=least, max_records=most)
    assert all(piece.size > 0 and (most is None or piece.size <= most) for piece in pieces)
    rebuilt: dict[TopicPartition, list[OffsetRange]] = {}
    for piece in pieces:
        rebuilt.setdefault(piece.topic_partition, []).append(piece)
    for whole in ranges:
        cut = rebuilt.pop(whole.topic_partition, [])
        assert [piece.start for piece in cut] == [whole.start, *(piece.end for piece in cut[:-1])][: len(cut)]
        assert (cut[-1].end if cut else whole.start) == whole.end
        if most is None:
            assert not cut or max(piece.size for piece in cut) - min(piece.size for piece in cut) <= 1
    assert not rebuilt


@no_deadline
@given(range_lists(), st.integers(1, 60))
def test_a_minimum_is_about_met(ranges: list[OffsetRange], least: int) -> None:
    pieces = split(ranges, min_partitions=least)
    offsets = sum(piece.size for piece in ranges)
    nonempty = sum(1 for piece in ranges if piece.size)
    assert len(pieces) <= max(nonempty, least + nonempty)
    assert len(pieces) >= min(least, nonempty, offsets)


@no_deadline
@given(range_lists(), st.integers(1, 2000))
def test_admission_moves_every_backlog_and_none_too_far(ranges: list[OffsetRange], limit: int) -> None:
    start = {piece.topic_partition: piece.start for piece in ranges}
    latest = {piece.topic_partition: piece.end for piece in ranges}
    end = admit(start, latest, limit)
    assert end.keys() == latest.keys()
    for name, offset in end.items():
        assert min(start[name] + 1, latest[name]) <= offset <= latest[name]
    moved = sum(end[name] - start[name] for name in end)
    assert moved <= limit + len(ranges)
    # Repeated calls reach the end, so a run with a fixed end always finishes.
    for _ in range(sum(piece.size for piece in ranges)):
        if end == latest:
            break
        end = admit(end, latest, limit)
    assert end == latest


@no_deadline
@given(st.dictionaries(partitions, positions))
def test_offsets_survive_their_text(offsets: dict[TopicPartition, int]) -> None:
    assert from_spark(json.loads(json.dumps(to_spark(offsets)))) == offsets
    assert parse_json("startingOffsets", to_json(offsets), lowest=-2) == offsets
    shuffled = dict(sorted(offsets.items(), reverse=True))
    assert json.dumps(to_spark(shuffled)) == json.dumps(to_spark(offsets))
