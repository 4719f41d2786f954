"""Compares the offset map with a dict; its bound, and digests of similar keys."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.log.compaction.offset_map import NOT_FOUND, Digests, KeyDigester, OffsetMap

SEED = b"0123456789abcdef"
DIGESTER = KeyDigester(SEED)


def digests(keys: list[bytes], digester: KeyDigester = DIGESTER) -> Digests:
    length = np.array([len(key) for key in keys], dtype=np.int64)
    return digester.digest(b"".join(keys) + bytes(8), np.cumsum(length) - length, length)


def offsets(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


def found(known: OffsetMap, keys: list[bytes]) -> list[int]:
    result: list[int] = known.find(digests(keys)).tolist()
    return result


@given(st.lists(st.binary(max_size=40), max_size=60))
def test_equal_digests_mean_equal_keys(keys: list[bytes]) -> None:
    high, low = digests(keys)
    words = list(zip(high.tolist(), low.tolist(), strict=True))
    for key, word in zip(keys, words, strict=True):
        for other, other_word in zip(keys, words, strict=True):
            assert (key == other) == (word == other_word)


def test_keys_that_differ_only_in_zeros_or_length_have_different_digests() -> None:
    keys = [bytes(length) for length in range(24)] + [b"a" + bytes(length) for length in range(24)]
    high, low = digests(keys)
    assert len(set(zip(high.tolist(), low.tolist(), strict=True))) == len(keys)


def test_like_keys_are_spread_evenly() -> None:
    high, _ = digests([b"user-%07d" % number for number in range(10_000)])
    counts = np.bincount((high >> np.uint64(60)).astype(np.int64), minlength=16)
    assert counts.min() > 500
    assert counts.max() < 750


def test_the_seed_decides_where_keys_lie() -> None:
    keys = [b"short", b"a key of more than fifteen bytes"]
    other = digests(keys, KeyDigester(b"another seed 123"))
    same = digests(keys, KeyDigester(SEED))
    assert not (digests(keys).high == other.high).any()
    assert (digests(keys).high == same.high).all()
    assert (digests(keys).low == same.low).all()


def test_too_small_a_buffer_is_a_bug() -> None:
    with pytest.raises(ValueError, match="too small"):
        DIGESTER.digest(b"short", offsets(0), offsets(1))


@given(
    st.lists(st.lists(st.integers(0, 30), max_size=40), max_size=8),
    st.integers(1, 40),
    st.integers(0, 3),
)
def test_the_map_is_a_dict_of_what_fits(batches: list[list[int]], slots: int, long: int) -> None:
    known = OffsetMap(slots * 24, 1.0)
    assert known.max_keys == slots
    expected: dict[bytes, int] = {}
    offset, cut = 0, None
    for numbers in batches:
        keys = [b"%d" % number + b"." * 8 * long for number in numbers]
        cut = known.insert(digests(keys), np.arange(offset, offset + len(keys)))
        for place, key in enumerate(keys):
            if cut is None or offset + place < cut:
                expected[key] = offset + place
        offset += len(keys)
        if cut is not None:
            break
    else:
        cut = known.settle()
    every = [b"%d" % number + b"." * 8 * long for numbers in batches for number in numbers]
    fitting: dict[bytes, int] = {}
    first_too_many = None
    for place, key in enumerate(every):
        if key not in fitting and len(fitting) == slots:
            first_too_many = place
            break
        fitting[key] = place
    assert cut == first_too_many
    assert len(known) == len(fitting)
    assert found(known, every) == [fitting.get(key, NOT_FOUND) for key in every]
    newest = set(fitting.values())
    assert known.newest(0, 1000).tolist() == [offset in newest for offset in range(1000)]
    assert known.utilization == len(fitting) / slots


def test_many_merges_keep_the_newest() -> None:
    known = OffsetMap(24 * 5000, 0.9)
    generator = np.random.default_rng(1)
    expected: dict[int, int] = {}
    for begin in range(0, 60_000, 3000):
        numbers = generator.integers(0, 4000, 3000).tolist()
        assert known.insert(digests([b"%d" % number for number in numbers]), np.arange(begin, begin + 3000)) is None
        expected.update(zip(numbers, range(begin, begin + 3000), strict=True))
    assert known.settle() is None
    assert known.settle() is None
    assert found(known, [b"%d" % number for number in range(4100)]) == [
        expected.get(number, NOT_FOUND) for number in range(4100)
    ]


def test_keys_with_equal_first_halves_are_distinguished() -> None:
    high = np.full(6, 7, dtype=np.uint64)
    low = np.array([5, 1, 3, 1, 2, 5], dtype=np.uint64)
    known = OffsetMap(24 * 10, 1.0)
    known.insert(Digests(high, low), np.arange(6))
    assert known.settle() is None
    asked = np.array([1, 2, 3, 4, 5, 0, 9], dtype=np.uint64)
    assert known.find(Digests(np.full(7, 7, dtype=np.uint64), asked)).tolist() == [3, 4, 2, -1, 5, -1, -1]
    others = Digests(np.array([6, 8], dtype=np.uint64), np.array([1, 1], dtype=np.uint64))
    assert known.find(others).tolist() == [-1, -1]


def test_at_least_one_key_fits() -> None:
    known = OffsetMap(0, 0.9)
    assert known.insert(digests([b"a", b"a", b"b"]), offsets(4, 5, 6)) is None
    assert known.settle() == 6
    assert found(known, [b"a", b"b"]) == [5, NOT_FOUND]


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=80), st.integers(0, 63))
def test_keys_that_lie_in_one_place_are_found(words: list[tuple[int, int]], shift: int) -> None:
    """With any distribution of digests, which may only affect the speed."""
    columns = np.array(words, dtype=np.uint64).reshape(-1, 2)
    keys = Digests(columns[:, 0] << np.uint64(min(shift, 60)), columns[:, 1].copy())
    known = OffsetMap(24 * 1000, 0.9)
    assert known.insert(keys, np.arange(len(words))) is None
    assert known.settle() is None
    newest = {word: offset for offset, word in enumerate(words)}
    assert len(known) == len(newest)
    assert known.find(keys).tolist() == [newest[word] for word in words]
