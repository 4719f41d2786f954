"""The brokers of one pod: their ids, ports, containers and directories. Pure.

A pod has `spec.brokers.perPod` brokers. The slot of a broker is its number in its pod, from 0 on. Everything that
belongs to slot 0 has the name and the number that it has in a pod with one broker.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

MAX_PER_POD: Final = 16
"""Maximum number of brokers in a pod."""
ID_STRIDE: Final = 1_000
"""Distance between the ids of two brokers of a pod in adjacent slots. A cluster has at most this many pods."""
PORT_STRIDE: Final = 1_000
"""Distance between the ports of two brokers of a pod in adjacent slots."""
MAX_PORT: Final = 65_535
_CONTAINER: Final = "kafka"
_SHORT_PORT_NAMES: Final = {"tcp-replication": "tcp-repl", "tcp-prometheus": "tcp-prom"}
"""Names of ports that leave no place for a suffix: the name of a container's port has at most 15 characters."""


def port(base: int, slot: int) -> int:
    """Return the port of a slot. `base`: the port of slot 0."""
    return base + PORT_STRIDE * slot


def collide(one: int, other: int, per_pod: int) -> bool:
    """Whether two different ports of slot 0 need the same port in some slots."""
    distance = abs(one - other)
    return distance % PORT_STRIDE == 0 and distance < PORT_STRIDE * per_pod


def ports(bases: Iterable[int], per_pod: int) -> list[int]:
    """Return the ports of all slots, the slots in order."""
    first = list(bases)
    return [port(base, slot) for slot in range(per_pod) for base in first]


def port_name(name: str, slot: int) -> str:
    """Return the name of a port of a container. It is unique in the pod. `name`: that in slot 0."""
    return name if slot == 0 else suffixed(_SHORT_PORT_NAMES.get(name, name), slot)


def container(slot: int) -> str:
    """Return the name of the container of a slot."""
    return suffixed(_CONTAINER, slot)


def slot_of(container_name: str) -> int | None:
    """Return the slot of a container; None if it is not the container of a broker."""
    if container_name == _CONTAINER:
        return 0
    digits = container_name.removeprefix(f"{_CONTAINER}-")
    is_number = digits != container_name and digits.isascii() and digits.isdecimal() and not digits.startswith("0")
    return int(digits) if is_number else None


def suffixed(name: str, slot: int) -> str:
    """Return the name of something that each broker of a pod has, such as a log directory."""
    return name if slot == 0 else f"{name}-{slot}"
