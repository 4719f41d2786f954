"""The CRC-32 of formats 0 and 1: that of `isal`, or of zlib on platforms without `isal`.

Both return the same. For messages of 200 B, `isal` needs a third of the time (design note 0015).
"""

from __future__ import annotations

try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["crc32"]
