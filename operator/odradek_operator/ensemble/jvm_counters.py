"""Reads counters of a running Java process from the file that every HotSpot JVM writes for `jstat`. Pure.

`pod/zookeeper_pod` uses it at each scrape for the number and time of garbage collections. The file,
`/tmp/hsperfdata_<user>/<pid>`, is shared memory that the JVM updates. Its layout is that of the JDK's `perfMemory.hpp`,
version 2.0: a header of 32 bytes, then entries with a name and one value.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from struct import Struct
from typing import Final, NamedTuple

_MAGIC: Final = b"\xca\xfe\xc0\xc0"
_VERSION: Final = 2
_LONG: Final = ord("J")
_BYTE: Final = ord("B")
_MAX_ENTRIES: Final = 10_000

_NAME: Final = re.compile(r"sun\.gc\.collector\.(\d+)\.name")
_FREQUENCY: Final = "sun.os.hrt.frequency"


class Collections(NamedTuple):
    """One garbage collector of a JVM."""

    collector: str
    times: int
    seconds: float


class LayoutError(Exception):
    """The bytes are not such a file, or the JVM is still creating it."""


def counters(data: bytes) -> dict[str, int | str]:
    """Return all values of the file that are integers or strings. Raises `LayoutError`."""
    if data[:4] != _MAGIC or len(data) < 32 or data[5] != _VERSION:
        raise LayoutError("not performance data of version 2")
    order = "<" if data[4] == 1 else ">"
    header, entry, long = Struct(f"{order}ii"), Struct(f"{order}iii4Bi"), Struct(f"{order}q")
    found: dict[str, int | str] = {}
    try:
        at, count = header.unpack_from(data, 24)
        for _ in range(min(count, _MAX_ENTRIES)):
            length, name_at, vector, kind, _, _, _, value_at = entry.unpack_from(data, at)
            if length < entry.size:
                raise LayoutError(f"an entry has {length} bytes")
            name = _text(data, at + name_at)
            if kind == _LONG and vector == 0:
                found[name] = long.unpack_from(data, at + value_at)[0]
            elif kind == _BYTE and vector > 0:
                found[name] = _text(data, at + value_at)
            at += length
    except struct.error as error:
        raise LayoutError(str(error)) from error
    return found


def collections(values: Mapping[str, int | str]) -> list[Collections]:
    """Return the garbage collectors in the counters of a JVM."""
    frequency = values.get(_FREQUENCY)
    if not isinstance(frequency, int) or frequency <= 0:
        return []
    found = []
    for name, collector in values.items():
        match = _NAME.fullmatch(name)
        if match is None:
            continue
        prefix = f"sun.gc.collector.{match[1]}."
        count, ticks = values.get(prefix + "invocations"), values.get(prefix + "time")
        if isinstance(count, int) and isinstance(ticks, int):
            found.append(Collections(str(collector), count, ticks / frequency))
    return found


def _text(data: bytes, at: int) -> str:
    end = data.find(b"\0", at)
    return data[at : end if end >= 0 else len(data)].decode("utf-8", "replace")
