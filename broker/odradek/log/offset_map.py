"""Keys and their newest offsets in bounded memory: what a compaction pass knows of the dirty part of a log.

Columns of keys and offsets enter in the order of the log; of any keys their newest offsets leave. `log.cleaning` owns
one for a pass, in a worker. Invariant: no more than `max_keys` different keys are known, and of the records before the
one that did not fit, each key's newest offset is.

A key is known by 16 bytes: keys of up to 15 bytes by themselves and their length, longer ones by their BLAKE2b digest.
A keyed three-round Feistel network over the two halves, which loses nothing, then spreads them evenly, so that the
first bits tell where about a key is, and the first half alone mostly decides. Known keys lie in three sorted columns,
with a directory by their first bits; new ones wait unsorted and are merged in by and by, one column after the other,
so that a merge takes a third of the map beside it.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odradek.log.compaction import BYTES_PER_KEY

Integers = NDArray[np.int64]
Words = NDArray[np.uint64]

NOT_FOUND: Final = -1

_LONGEST_WHOLE_KEY: Final = 15
_WORD_BYTES: Final = 8
_WORD: Final = np.dtype("<u8")
_MASKS: Final = np.array([(1 << 8 * length) - 1 for length in range(_WORD_BYTES + 1)], dtype=np.uint64)
"""Of a little-endian word, its first 0 .. 8 bytes."""
_SHIFT: Final = np.uint64(33)
_FIRST_FACTOR: Final = np.uint64(0xFF51AFD7ED558CCD)
_SECOND_FACTOR: Final = np.uint64(0xC4CEB9FE1A85EC53)
_FEWEST_WAITING: Final = 1 << 10
_MOST_WAITING: Final = 1 << 19
"""Sorting takes several times the memory of what is sorted."""
_BUCKET_BITS: Final = 3
"""A bucket holds four to eight keys: what is read to find one is mostly one line of the processor's cache."""
_SHARE_OF_ROOM: Final = 4
"""As long as the map is not full, this part of its free room may wait: a merge moves all known keys, whatever the
number of new ones."""


class Digests(NamedTuple):
    """Keys as two columns of 64-bit words; equal where, and only where, the keys are."""

    high: Words
    low: Words


class KeyDigester:
    """Turns keys into digests; equal seeds give equal ones."""

    __slots__ = ("_round_keys",)

    def __init__(self, seed: bytes) -> None:
        """`seed` should be unpredictable: who knows it can make keys that lie in one place."""
        self._round_keys = np.frombuffer(blake2b(seed, digest_size=24).digest(), dtype=_WORD).astype(np.uint64)

    def digest(self, buffer: bytes, start: Integers, length: Integers) -> Digests:
        """Digests of the keys at `start`, of `length` >= 0 bytes.

        Behind a key at least eight bytes of `buffer` must follow, as they do behind the keys of `records.columns`.
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
    """The keys themselves as two words, the length in the last byte; of longer keys anything."""
    last_word = len(buffer) - _WORD_BYTES
    if last_word < 0:
        raise ValueError(f"{len(buffer)} bytes are too few to hold keys and what follows them")
    # A word at every byte, overlapping: one gather fetches eight bytes of each key.
    words = np.ndarray(shape=(last_word + 1,), dtype=_WORD, buffer=buffer, strides=(1,))
    if length.size and (length == length[0]).all():
        return _equally_short_keys(words, start, int(length[0]))
    low = words[start].astype(np.uint64) & _MASKS[np.minimum(length, _WORD_BYTES)]
    rest = np.clip(length - _WORD_BYTES, 0, _WORD_BYTES)
    high = words[np.minimum(start + _WORD_BYTES, last_word)].astype(np.uint64) & _MASKS[rest]
    high |= (length.astype(np.uint64) & np.uint64(0xFF)) << np.uint64(56)
    return low, high


def _equally_short_keys(words: Words, start: Integers, length: int) -> tuple[Words, Words]:
    """The same for keys of one length, as most are: what depends on it is found once."""
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
    """A well-spread function of each word, as the finaliser of MurmurHash3 is."""
    mixed = words + key
    mixed ^= mixed >> _SHIFT
    mixed *= _FIRST_FACTOR
    mixed ^= mixed >> _SHIFT
    mixed *= _SECOND_FACTOR
    mixed ^= mixed >> _SHIFT
    return mixed


class OffsetMap:
    """Newest offset of each key, of as many keys as memory holds."""

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
        """`load_factor` of the memory is for known keys, the rest for those that wait. At least one key fits."""
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
        """Keys that are known, without those that wait."""
        return len(self._offset)

    @property
    def _max_waiting(self) -> int:
        room = (self.max_keys - len(self)) // _SHARE_OF_ROOM
        return min(max(self._least_waiting, room), _MOST_WAITING)

    @property
    def utilization(self) -> float:
        """Share of `max_keys` that is taken, 0 .. 1."""
        return len(self) / self.max_keys

    def insert(self, keys: Digests, offsets: Integers) -> int | None:
        """Note keys and their offsets, which rise over all calls.

        The offset of the first record whose key does not fit any more, once that is known: it and everything after it
        is forgotten, and nothing may be inserted later.
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
        """Merge in what waits, as must be done before `find`; the result is that of `insert`."""
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
        """Take in rows in the order of the log; or none of them, and the first row whose key would be one too many."""
        if not offset.size:
            return None
        order = _sorted_order(high, low)
        high, low = high[order], low[order]
        differs = np.flatnonzero((high[1:] != high[:-1]) | (low[1:] != low[:-1])) + 1
        first = np.concatenate((np.zeros(1, dtype=np.int64), differs))
        last = np.append(differs, len(high)) - 1
        # The sort is stable, so the first of equal keys is the oldest and the last the newest.
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
        """The newest offset of each key; `NOT_FOUND` where it is unknown. `settle` comes first."""
        # Neighbouring searches in order touch neighbouring memory, which is worth the sort.
        order = np.argsort(keys.high)
        place, known = self._locate(keys.high[order], keys.low[order])
        found = np.full(len(order), NOT_FOUND, dtype=np.int64)
        found[order[known]] = self._offset[place[known]]
        return found

    def newest(self, begin: int, end: int) -> NDArray[np.bool_]:
        """Of each offset in [begin, end), whether it is some key's newest; all known ones lie there.

        It answers for the records that were inserted, as `find` does, without their keys. `settle` comes first.
        """
        flags = np.zeros(end - begin, dtype=np.bool_)
        for place in range(0, len(self), _MOST_WAITING):
            flags[self._offset[place : place + _MOST_WAITING] - begin] = True
        return flags

    def _locate(self, high: Words, low: Words) -> tuple[Integers, NDArray[np.bool_]]:
        """Where each key is or belongs, and whether it is there."""
        place = self._begins[(high >> self._shift).view(np.int64)]
        size = len(self)
        if not size:
            return place, np.zeros(len(high), dtype=np.bool_)
        # From its bucket's begin each key goes on, a step at a time, until a known one is not before it.
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
        """Whether the known key at each place is less than the other one."""
        known = self._high[place]
        before: NDArray[np.bool_] = known < high
        same = np.flatnonzero(known == high)
        before[same] = self._low[place[same]] < low[same]
        return before

    def _index(self) -> None:
        """Divide the known keys into buckets by their first bits, which spread evenly."""
        bits = max(len(self).bit_length() - _BUCKET_BITS, 1)
        self._shift = np.uint64(64 - bits)
        counts = np.bincount((self._high >> self._shift).view(np.int64), minlength=1 << bits)
        self._begins = np.cumsum(counts) - counts


def _sorted_order(high: Words, low: Words) -> Integers:
    """The stable order of keys.

    Digests are spread so evenly that the first bits alone nearly always tell them apart; a row's number in the place of
    the others makes one sort of plain words of it, many times as fast as a stable sort by two columns.
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
