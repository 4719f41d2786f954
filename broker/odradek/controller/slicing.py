"""Long work in slices, so that the loop gets to others in between: heartbeats, fetches, answers.

Any items enter, lists of a bounded length leave. Called by whoever touches every partition of a cluster and waits for
something after each slice. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

_T = TypeVar("_T")

PARTITIONS: Final = 500
"""What takes some 10 µs for each partition holds the loop for some 5 ms."""


def slices(items: Iterable[_T], size: int = PARTITIONS) -> Iterator[list[_T]]:
    """The items in order, `size` at a time, none of them empty; copied first, as their source may change meanwhile."""
    every = list(items)
    for start in range(0, len(every), size):
        yield every[start : start + size]
