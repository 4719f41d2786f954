"""Keys and their newest offsets in bounded memory: the offset map of a compaction pass.

`log/compaction/compaction_pass` inserts columns of keys and offsets in log order, and looks up the newest offset of
each key; each pass has one map, in a worker. Invariant: the map holds at most `max_keys` different keys, with the
newest offset of each among the records before the first one that did not fit.

Each key is represented by 16 bytes: a key of up to 15 bytes by itself and its length, a longer key by its BLAKE2b
digest. A keyed three-round Feistel network over the two halves, which is reversible, then distributes the keys evenly.
The first bits therefore predict the position of a key, and the first half alone usually identifies it. Known keys are
in three sorted columns with a directory by their first bits. New keys wait unsorted and are merged in from time to
time, column by column, so that a merge needs only a third of the map as extra memory.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odradek.log.compaction.cleaning_decisions import BYTES_PER_KEY

Integers = NDArray[np.int64]
Words = NDArray[np.uint64]

NOT_FOUND: Final = -1

_LONGEST_WHOLE_KEY: Final = 15
_WORD_BYTES: Final = 8
_WORD: Final = np.dtype("<u8")
_MASKS: Final = np.array([(1 << 8 * length) - 1 for length in range(_WORD_BYTES + 1)], dtype=np.uint64)
"""Masks that keep the first 0 .. 8 bytes of a little-endian word."""
_SHIFT: Final = np.uint64(33)
_FIRST_FACTOR: Final = np.uint64(0xFF51AFD7ED558CCD)
_SECOND_FACTOR: Final = np.uint64(0xC4CEB9FE1A85EC53)
_FEWEST_WAITING: Final = 1 << 10
_MOST_WAITING: Final = 1 << 19
"""Maximum number of unmerged keys: sorting takes several times the memory of what is sorted."""
_BUCKET_BITS: Final = 3
"""A bucket holds four to eight keys, so that a lookup mostly reads one cache line."""
_SHARE_OF_ROOM: Final = 4
"""While the map is not full, unmerged keys may take 1/4 of its free space: a merge moves all known keys, whatever the
number of new ones."""


class Digests(NamedTuple):
    """Keys as two columns of 64-bit words, equal if and only if the keys are equal."""

    high: Words
    low: Words


class KeyDigester:
    """Computes digests of keys; equal seeds give equal digests."""

    __slots__ = ("_round_keys",)

    def __init__(self, seed: bytes) -> None:
        """`seed` should be unpredictable: with it, a client could create keys that all fall into one bucket."""
        self._round_keys = np.frombuffer(blake2b(seed, digest_size=24).digest(), dtype=_WORD).astype(np.uint64)

    def digest(self, buffer: bytes, start: Integers, length: Integers) -> Digests:
        """Return the digests of the keys at `start`, with lengths `length` >= 0 in bytes.

        At least eight bytes of `buffer` must follow each key, as they do after the keys of `records.columns`.
        """
        low, high = _short_keys(buffer, start, length)
        long_keys = np.flatnonzero(length > _LONGEST_WHOLE_KEY)
        if long_keys.size:
            ends = (start + length)[long_keys].tolist()
            packed = b"".join(
                [
                    blake2b(buffer[begin:end], digest_size=16).digest()
                    for begin, end in zip(start[long_keys].tolist(), ends, strict=True)
                ]
            )
            words = np.frombuffer(packed, dtype=_WORD)
            low[long_keys] = words[0::2]
            high[long_keys] = words[1::2]
        first, second, third = self._round_keys
        high ^= _mix(low, first)
        low ^= _mix(high, second)
        high ^= _mix(low, third)
        return Digests(high, low)


def _short_keys(buffer: bytes, start: Integers, length: Integers) -> tuple[Words, Words]:
    """Return short keys as two words with the length in the last byte; the words of longer keys are undefined."""
    last_word = len(buffer) - _WORD_BYTES
    if last_word < 0:
        raise ValueError(
            f"a buffer of {len(buffer)} bytes is too small: at least {_WORD_BYTES} bytes must follow each key"
        )
    # Overlapping words, one at each byte: a single gather fetches eight bytes of each key.
    words = np.ndarray(shape=(last_word + 1,), dtype=_WORD, buffer=buffer, strides=(1,))
    if length.size and (length == length[0]).all():
        return _equally_short_keys(words, start, int(length[0]))
    low = words[start].astype(np.uint64) & _MASKS[np.minimum(length, _WORD_BYTES)]
    rest = np.clip(length - _WORD_BYTES, 0, _WORD_BYTES)
    high = words[np.minimum(start + _WORD_BYTES, last_word)].astype(np.uint64) & _MASKS[rest]
    high |= (length.astype(np.uint64) & np.uint64(0xFF)) << np.uint64(56)
    return low, high


def _equally_short_keys(words: Words, start: Integers, length: int) -> tuple[Words, Words]:
    """Like `_short_keys`, for keys of one length, the common case: what depends on the length is computed once."""
    low = words[start].astype(np.uint64, copy=False)
    low &= _MASKS[min(length, _WORD_BYTES)]
    tag = np.uint64((length & 0xFF) << 56)
    if length <= _WORD_BYTES:
        return low, np.full(len(low), tag)
    high = words[np.minimum(start + _WORD_BYTES, len(words) - 1)].astype(np.uint64, copy=False)
    high &= _MASKS[min(length - _WORD_BYTES, _WORD_BYTES)]
    high |= tag
    return low, high


def _mix(words: Words, key: np.uint64) -> Words:
    """Return a well-distributed hash of each word, like the finalizer of MurmurHash3."""
    mixed = words + key
    mixed ^= mixed >> _SHIFT
    mixed *= _FIRST_FACTOR
    mixed ^= mixed >> _SHIFT
    mixed *= _SECOND_FACTOR
    mixed ^= mixed >> _SHIFT
    return mixed


class OffsetMap:
    """Newest offset of each key, for as many keys as fit into memory."""

    __slots__ = (
        "_begins",
        "_high",
        "_least_waiting",
        "_low",
        "_offset",
        "_shift",
        "_waiting",
        "_waiting_rows",
        "max_keys",
    )

    def __init__(self, memory_bytes: int, load_factor: float) -> None:
        """`load_factor` is the fraction of memory for merged keys; unmerged keys use the rest. At least one fits."""
        slots = memory_bytes // BYTES_PER_KEY
        self.max_keys = max(int(slots * load_factor), 1)
        self._least_waiting = max(slots - self.max_keys, _FEWEST_WAITING)
        self._high: Words = np.empty(0, dtype=np.uint64)
        self._low: Words = np.empty(0, dtype=np.uint64)
        self._offset: Integers = np.empty(0, dtype=np.int64)
        self._index()
        self._waiting: list[tuple[Words, Words, Integers]] = []
        self._waiting_rows = 0

    def __len__(self) -> int:
        """Return the number of merged keys."""
        return len(self._offset)

    @property
    def _max_waiting(self) -> int:
        room = (self.max_keys - len(self)) // _SHARE_OF_ROOM
        return min(max(self._least_waiting, room), _MOST_WAITING)

    @property
    def utilization(self) -> float:
        """Fraction of `max_keys` in use, 0 .. 1."""
        return len(self) / self.max_keys

    def insert(self, keys: Digests, offsets: Integers) -> int | None:
        """Add keys and their offsets, which must increase over all calls.

        Returns the offset of the first record whose key does not fit, once that is known. That record and all later
        ones are then dropped, and no more may be inserted.
        """
        begin, end = 0, len(offsets)
        while begin < end:
            most = self._max_waiting
            stop = min(begin + most - self._waiting_rows, end)
            self._waiting.append((keys.high[begin:stop], keys.low[begin:stop], offsets[begin:stop]))
            self._waiting_rows += stop - begin
            begin = stop
            if self._waiting_rows >= most:
                cut = self.settle()
                if cut is not None:
                    return cut
        return None

    def settle(self) -> int | None:
        """Merge the waiting keys; required before `find`. Returns the same as `insert`."""
        if not self._waiting:
            return None
        high, low, offset = (np.concatenate(column) for column in zip(*self._waiting, strict=True))
        self._waiting.clear()
        self._waiting_rows = 0
        cut_row = self._merge(high, low, offset)
        if cut_row is None:
            return None
        self._merge(high[:cut_row], low[:cut_row], offset[:cut_row])
        return int(offset[cut_row])

    def _merge(self, high: Words, low: Words, offset: Integers) -> int | None:
        """Merge all rows, in log order, or none: then return the first row whose key would be one too many."""
        if not offset.size:
            return None
        order = _sorted_order(high, low)
        high, low = high[order], low[order]
        differs = np.flatnonzero((high[1:] != high[:-1]) | (low[1:] != low[:-1])) + 1
        first = np.concatenate((np.zeros(1, dtype=np.int64), differs))
        last = np.append(differs, len(high)) - 1
        # The sort is stable: of equal keys, the first row is the oldest and the last row the newest.
        high, low = high[first], low[first]
        newest, oldest_row = offset[order[last]], order[first]
        place, known = self._locate(high, low)
        new = np.flatnonzero(~known)
        room = self.max_keys - len(self)
        if new.size > room:
            return int(np.partition(oldest_row[new], room)[room])
        self._offset[place[known]] = newest[known]
        if new.size:
            target = place[new] + np.arange(new.size)
            kept = np.ones(len(self) + new.size, dtype=np.bool_)
            kept[target] = False
            self._high = _woven(self._high, high[new], target, kept)
            self._low = _woven(self._low, low[new], target, kept)
            self._offset = _woven(self._offset, newest[new], target, kept)
            self._index()
        return None

    def find(self, keys: Digests) -> Integers:
        """Return the newest offset of each key; `NOT_FOUND` if it is unknown. Call `settle` first."""
        # Sorted lookups access neighboring memory, which is worth the cost of the sort.
        order = np.argsort(keys.high)
        place, known = self._locate(keys.high[order], keys.low[order])
        found = np.full(len(order), NOT_FOUND, dtype=np.int64)
        found[order[known]] = self._offset[place[known]]
        return found

    def newest(self, begin: int, end: int) -> NDArray[np.bool_]:
        """Flag each offset in [begin, end) that is the newest of a key; all offsets in the map are in that range.

        For the records that were inserted this replaces `find`, without their keys. Call `settle` first.
        """
        flags = np.zeros(end - begin, dtype=np.bool_)
        for place in range(0, len(self), _MOST_WAITING):
            flags[self._offset[place : place + _MOST_WAITING] - begin] = True
        return flags

    def _locate(self, high: Words, low: Words) -> tuple[Integers, NDArray[np.bool_]]:
        """Return the position of each key, or where it would be inserted, and whether it is present."""
        place = self._begins[(high >> self._shift).view(np.int64)]
        size = len(self)
        if not size:
            return place, np.zeros(len(high), dtype=np.bool_)
        # From the start of its bucket, advance each key step by step to the first known key that is not smaller.
        last = size - 1
        before = np.flatnonzero((place < size) & self._is_before(np.minimum(place, last), high, low))
        while before.size:
            further = place[before] + 1
            place[before] = further
            goes_on = (further < size) & self._is_before(np.minimum(further, last), high[before], low[before])
            before = before[goes_on]
        at = np.minimum(place, last)
        return place, (place < size) & (self._high[at] == high) & (self._low[at] == low)

    def _is_before(self, place: Integers, high: Words, low: Words) -> NDArray[np.bool_]:
        """Whether the known key at each position is smaller than the given key."""
        known = self._high[place]
        before: NDArray[np.bool_] = known < high
        same = np.flatnonzero(known == high)
        before[same] = self._low[place[same]] < low[same]
        return before

    def _index(self) -> None:
        """Divide the known keys into buckets by their first bits, which are evenly distributed."""
        bits = max(len(self).bit_length() - _BUCKET_BITS, 1)
        self._shift = np.uint64(64 - bits)
        counts = np.bincount((self._high >> self._shift).view(np.int64), minlength=1 << bits)
        self._begins = np.cumsum(counts) - counts


def _sorted_order(high: Words, low: Words) -> Integers:
    """Return the stable sort order of keys.

    Digests are distributed so evenly that their first bits nearly always differ. Replacing the low bits with the row
    number turns this into one sort of plain words, many times as fast as a stable sort by two columns.
    """
    rows = np.arange(len(high), dtype=np.uint64)
    mask = np.uint64((1 << len(high).bit_length()) - 1)
    tagged = high & ~mask
    tagged |= rows
    tagged.sort()
    tagged &= mask
    order = tagged.astype(np.int64)
    first, second = high[order], low[order]
    same = first[1:] == first[:-1]
    same &= second[1:] == second[:-1]
    return order if (same | (first[1:] > first[:-1])).all() else np.lexsort((low, high))


def _woven(old: NDArray[np.generic], new: NDArray[np.generic], target: Integers, kept: NDArray[np.bool_]) -> NDArray:  # type: ignore[type-arg]
    column = np.empty(len(kept), dtype=old.dtype)
    column[target] = new
    column[kept] = old
    return column
