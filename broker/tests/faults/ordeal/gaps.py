"""Computes unavailability: the longest time without an acknowledgement of each partition. Pure.

The load sends records to each partition many times a second and does not wait for earlier ones. The unavailability of a
partition is the longest time between two consecutive acknowledgements; the first interval begins at the fault. So the
value is never too low. It may be too high by one interval of the load and a round trip, which the row of times without
a fault in the table shows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ordeal.records import Acks


def longest_gaps(acks: Acks, partitions: int, begin: float, end: float) -> NDArray[np.float64]:
    """Return the milliseconds for each partition between the monotonic times `begin` and `end`, in seconds.

    For a partition without an acknowledgement, it is the whole time. Raises `ValueError` if `end` is before `begin`.
    """
    if end < begin:
        raise ValueError("the end is before the beginning")
    inside = acks[(acks["at"] > begin) & (acks["at"] <= end)]
    found = np.empty(partitions)
    for partition in range(partitions):
        times = np.sort(inside["at"][inside["partition"] == partition])
        found[partition] = np.diff(times, prepend=begin, append=end).max() * 1000
    return found
