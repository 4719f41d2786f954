"""Unavailability: for each partition the longest time without an acknowledgement. Pure.

The load asks each partition many times a second, whatever becomes of the earlier questions. How long a partition could
not be written is the longest time between two acknowledgements in a row, counted from the fault where it is the first.
So it never shows too little, and up to one interval of the load plus a usual round trip too much: the row of quiet
times in the table tells how much that is.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ordeal.records import Acks


def longest_gaps(acks: Acks, partitions: int, begin: float, end: float) -> NDArray[np.float64]:
    """Milliseconds for each partition, between the monotonic times `begin` and `end` in seconds.

    A partition without an acknowledgement has the whole time. `ValueError` when the end is before the beginning.
    """
    if end < begin:
        raise ValueError("a time cannot end before it begins")
    inside = acks[(acks["at"] > begin) & (acks["at"] <= end)]
    found = np.empty(partitions)
    for partition in range(partitions):
        times = np.sort(inside["at"][inside["partition"] == partition])
        found[partition] = np.diff(times, prepend=begin, append=end).max() * 1000
    return found
