"""Ports of the loopback address for servers that tests start."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from typing import Final

RANGE_VARIABLE: Final = "ODRADEK_TEST_PORTS"
"""Environment variable with the range to choose from, such as `20000-26000`. Test processes that run at the same time
need different ranges: a port is unused while a server restarts."""

DEFAULT_RANGE: Final = "20000-32000"
"""Below the range that operating systems use for outgoing connections."""

_TRIES: Final = 2_000

_returned: Final[dict[int, None]] = {}
"""Ports that this process was given, oldest first: the server for which a port was chosen may not have started yet."""


def free_ports(count: int, *, slots: int = 1, stride: int = 1_000) -> list[int]:
    """Return different ports that are free now. Nothing reserves them, but the operating system does not assign them,
    and a process is not given a port again before it was given half as many as there are in the range.

    With `slots`, for each port p also p + stride, p + 2 * stride and so on are free, and no two ports share one of
    them. Raises `OSError` if there are not enough.
    """
    from odradek_operator.embedded.ports import is_free

    first, _, last = os.environ.get(RANGE_VARIABLE, DEFAULT_RANGE).partition("-")
    generator = random.SystemRandom()
    found: list[int] = []
    for _ in range(_TRIES):
        port = generator.randrange(int(first), int(last))
        used = range(port, port + stride * slots, stride)
        differs = all((port - other) % stride for other in found) if slots > 1 else port not in found
        if differs and not any(one in _returned for one in used) and all(map(is_free, used)):
            found.append(port)
            _remember(used, most=(int(last) - int(first)) // 2)
        if len(found) == count:
            return found
    raise OSError(f"{count} free ports were not found between {first} and {last}: set {RANGE_VARIABLE}")


def _remember(ports: Iterable[int], *, most: int) -> None:
    _returned.update(dict.fromkeys(ports))
    while len(_returned) > most:
        del _returned[next(iter(_returned))]


def range_of(worker: int, workers: int) -> str:
    """Return the part of the default range for one of several test processes."""
    first, _, last = DEFAULT_RANGE.partition("-")
    size = (int(last) - int(first)) // workers
    start = int(first) + worker * size
    return f"{start}-{start + size}"
