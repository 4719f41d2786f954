"""Decodes columns of Base64 text, in which JSON has binary values. Pure; no Python step per value."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_ALPHABET: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_PAD: Final = ord("=")
_INVALID: Final = 255


def _codes() -> NDArray[np.uint8]:
    codes = np.full(256, _INVALID, dtype=np.uint8)
    codes[np.frombuffer(_ALPHABET, dtype=np.uint8)] = np.arange(64)
    codes[_PAD] = 0
    return codes


_CODES: Final = _codes()


def decode_base64(texts: pa.StringArray) -> pa.BinaryArray:
    """Return the decoded bytes, null for null. Raises `ArrowInvalid` unless all are Base64 with padding (RFC 4648)."""
    lengths = np.asarray(pc.fill_null(pc.binary_length(texts), 0)).astype(np.int64)
    data = np.frombuffer(pc.binary_join(_as_list(texts), "")[0].as_buffer(), dtype=np.uint8)
    if (lengths % 4).any():
        raise pa.ArrowInvalid("the length of a Base64 text is not a multiple of four")
    ends = np.cumsum(lengths)
    filled = ends[lengths > 0]
    one = data[filled - 1] == _PAD
    padding = one.astype(np.int64) + (one & (data[filled - 2] == _PAD))
    codes = _CODES[data]
    if (codes == _INVALID).any() or np.count_nonzero(data == _PAD) != padding.sum():
        raise pa.ArrowInvalid("a text has characters that are not Base64")
    quads = codes.reshape(-1, 4).astype(np.uint32)
    words = (quads[:, 0] << 18) | (quads[:, 1] << 12) | (quads[:, 2] << 6) | quads[:, 3]
    decoded = np.stack([(words >> shift).astype(np.uint8) for shift in (16, 8, 0)], axis=1).reshape(-1)
    keep = np.ones(len(decoded), dtype=np.bool_)
    last = filled // 4 * 3
    keep[last[padding >= 1] - 1] = False
    keep[last[padding == 2] - 2] = False
    sizes = lengths // 4 * 3
    sizes[lengths > 0] -= padding
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
    made = pa.Array.from_buffers(
        pa.binary(), len(texts), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(decoded[keep]))]
    )
    return pc.if_else(texts.is_valid(), made, pa.scalar(None, pa.binary())) if texts.null_count else made


def _as_list(texts: pa.StringArray) -> pa.ListArray:
    """Return a single list with all texts that are not null, to join them."""
    present = texts.drop_null()
    return pa.ListArray.from_arrays(pa.array([0, len(present)], pa.int32()), present)
