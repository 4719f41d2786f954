"""Ports of the loopback address for servers that tests start."""

from __future__ import annotations

import os
import random
from typing import Final

RANGE_VARIABLE: Final = "ODRADEK_TEST_PORTS"
"""Environment variable with the range to choose from, such as `20000-26000`. Test processes that run at the same time
need different ranges: a port is unused while a server restarts."""

DEFAULT_RANGE: Final = "20000-32000"
"""Below the range that operating systems use for outgoing connections."""

_TRIES: Final = 2_000


def free_ports(count: int, *, slots: int = 1, stride: int = 1_000) -> list[int]:
    """Return different ports that are free now. Nothing reserves them, but the operating system does not assign them.

    With `slots`, for each port p also p + stride, p + 2 * stride and so on are free, and no two ports share one of
    them. Raises `OSError` if there are not enough.
    """
    from odradek_operator.embedded.ports import is_free

    first, _, last = os.environ.get(RANGE_VARIABLE, DEFAULT_RANGE).partition("-")
    generator = random.SystemRandom()
    found: list[int] = []
    for _ in range(_TRIES):
        port = generator.randrange(int(first), int(last))
        differs = all((port - other) % stride for other in found) if slots > 1 else port not in found
        if differs and all(is_free(port + stride * slot) for slot in range(slots)):
            found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"{count} free ports were not found between {first} and {last}: set {RANGE_VARIABLE}")


def range_of(worker: int, workers: int) -> str:
    """Return the part of the default range for one of several test processes."""
    first, _, last = DEFAULT_RANGE.partition("-")
    size = (int(last) - int(first)) // workers
    start = int(first) + worker * size
    return f"{start}-{start + size}"
