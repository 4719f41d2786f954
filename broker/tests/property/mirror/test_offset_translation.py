"""Whatever the source lacks and the target adds, a translated offset never skips a record."""

from __future__ import annotations

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from odradek.mirror.offset_translation import MAX_RUNS, OffsetRun, OffsetRuns

BATCH = st.lists(st.booleans(), min_size=1, max_size=8)
"""Which offsets of a batch have a record that is copied."""
FETCHES = st.lists(st.tuples(st.lists(BATCH, min_size=1, max_size=4), st.integers(0, 3)), min_size=1, max_size=40)
"""Batches of each fetch, and the source offsets without a batch after them: markers and aborted records."""


class Copy:
    """Copies fetches as the mirror does, and reports pairs to the runs."""

    def __init__(self, *, each_fetch: bool, sparing: bool = False) -> None:
        """`sparing`: only pairs with another difference are reported, and the ends of fetches include the gap."""
        self.runs = OffsetRuns()
        self.places: dict[int, int] = {}
        self.source = self.target = 0
        self._open: OffsetRun | None = None
        self._each_fetch = each_fetch
        self._sparing = sparing
        self._difference: int | None = None

    def fetch(self, batches: list[list[bool]], gap: int) -> None:
        """Copy batches, then write the marker of the target's transaction."""
        for batch in batches:
            difference = self.target - self.source
            if not self._sparing or difference != self._difference:
                self.report()
            self._difference = difference
            for is_copied in batch:
                if is_copied:
                    self.places[self.source] = self.target
                    self.target += 1
                self.source += 1
        if self._sparing:
            self.source += gap
            self.report()
        else:
            self.report()
            self.source += gap
        self.target += 1
        if self._each_fetch:
            self.store()

    def report(self) -> None:
        """Note a pair."""
        if self._open is None:
            self._open = OffsetRun(self.source, self.target)
        else:
            self._open = self._open.extended(self.source, self.target)

    def store(self) -> None:
        """Write the open run."""
        if self._open is not None:
            self.runs.add(self._open)
            self._open = OffsetRun(self._open.end_source, self._open.end_target)


@given(fetches=FETCHES, each_fetch=st.booleans(), sparing=st.booleans())
def test_a_translation_skips_no_record(
    fetches: list[tuple[list[list[bool]], int]], each_fetch: bool, sparing: bool
) -> None:
    copy = Copy(each_fetch=each_fetch, sparing=sparing)
    for batches, gap in fetches:
        copy.fetch(batches, gap)
    if not each_fetch:
        copy.store()
    assert len(copy.runs) <= MAX_RUNS
    sources = sorted(copy.places)
    before = -1
    for offset in range(copy.source + 2):
        index = bisect_left(sources, offset)
        exact = copy.places[sources[index]] if index < len(sources) else copy.target
        translated = copy.runs.translate(offset)
        assert translated is not None
        assert translated <= exact
        assert translated >= before, "a later offset is not translated to an earlier one"
        before = translated


@given(fetches=FETCHES)
def test_a_group_at_the_end_of_a_run_continues_at_the_next_record(
    fetches: list[tuple[list[list[bool]], int]],
) -> None:
    copy = Copy(each_fetch=True)
    for batches, gap in fetches:
        begin = copy.source
        copy.fetch(batches, gap)
        span = copy.source - gap - begin
        lost = span - sum(place >= begin for place in copy.places)
        for offset in range(begin, copy.source - gap + 1):
            later = [place for place in copy.places if place >= offset]
            exact = copy.places[min(later)] if later else copy.target - 1
            translated = copy.runs.translate(offset)
            # The marker before the fetch takes an offset in the target.
            assert translated is not None and exact - translated <= lost + 1


@given(lengths=st.lists(st.integers(0, 1000), min_size=300, max_size=600))
def test_runs_are_dense_at_the_end(lengths: list[int]) -> None:
    runs = OffsetRuns()
    starts = []
    source = 0
    for length in lengths:
        starts.append(source)
        # Every other run is missing, as after compaction of the topic.
        runs.add(OffsetRun(source, source, length // 2, 0, source + length // 2))
        source += length
    assert len(runs) <= MAX_RUNS
    end = starts[-1] + lengths[-1] // 2
    for start in starts:
        translated = runs.translate(start)
        assert translated is not None
        assert start - (end - start) - 1000 <= translated <= start
