"""What both directions of the conversion share: the numpy type of similar messages, and the size of its steps.

`conversion/up_runs` reads such tables and `conversion/down_runs` writes them; `up` and `down` convert everything else
one by one, in slices.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Octets = NDArray[np.uint8]

BEFORE_CRC: Final = 12
BEHIND_CRC: Final = 16
MOST: Final = 4096
"""Maximum number of messages in one table and of records in one slice, which limits their memory."""
MOST_BYTES: Final = 1 << 20
"""Maximum size of one table, with the exception of a single message."""

_FEWEST_ALONE: Final = 32
_PREFIX: Final = [("offset", ">i8"), ("size", ">i4"), ("crc", ">u4"), ("magic", "u1"), ("attributes", "u1")]
_TIMESTAMP: Final = [("timestamp", ">i8")]


@lru_cache(maxsize=64)
def message_type(magic: int, key_bytes: int, value_bytes: int) -> np.dtype[np.void]:
    """Return the numpy type of a message."""
    fields = [
        *_PREFIX,
        *(_TIMESTAMP if magic else []),
        ("key_length", ">i4"),
        ("key", "u1", (key_bytes,)),
        ("value_length", ">i4"),
        ("value", "u1", (value_bytes,)),
    ]
    return np.dtype(fields)


def next_slice(previous: int) -> int:
    """Return how many records to convert one by one before the next search for similar ones; `previous` is 0 at first.

    Each fruitless search doubles the slice, so that records without similar neighbors are rarely searched.
    """
    return min(2 * previous + _FEWEST_ALONE, MOST)
