"""The CRC-32 of old messages with and without `isal`."""

from __future__ import annotations

import importlib.util
import sys
import zlib
from unittest.mock import patch

from odradek.records.legacy import checksum


def without_isal() -> object:
    """Return the function that the module uses where `isal` is not installed."""
    spec = importlib.util.spec_from_file_location("checksum_without_isal", checksum.__file__)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with patch.dict(sys.modules, {"isal": None, "isal.isal_zlib": None}):
        spec.loader.exec_module(module)
    return module.crc32


def test_platforms_without_isal_use_zlib() -> None:
    assert without_isal() is zlib.crc32


def test_the_checksum_is_that_of_zlib() -> None:
    content = bytes(range(256)) * 5
    for size in (0, 1, 15, 16, 17, 63, 200, 1024, len(content)):
        assert checksum.crc32(content[:size]) == zlib.crc32(content[:size])
        assert checksum.crc32(content[:size], 0xDEADBEEF) == zlib.crc32(content[:size], 0xDEADBEEF)
    assert checksum.crc32(memoryview(content)[3:70]) == zlib.crc32(content[3:70])
