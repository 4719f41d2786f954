"""Planted bugs of small Produce requests, which are handled together."""

from __future__ import annotations

from typing import Any, Final

from odradek.log.plain_group import PlainGroup
from odradek.log.writes import LogWrites
from odradek_testkit.simulation.plants.planting import Bite, Plant


def _reuse_offsets(right: Any, bite: Bite) -> Any:
    """The next group gets the offsets of this one."""

    def add(self: Any, data: bytes, batch: Any) -> None:
        right(self, data, batch)
        bite()
        self.end_offset -= batch.count

    return add


def _stamp_the_former_epoch(right: Any, bite: Bite) -> Any:
    """Records get the epoch of the former leadership."""

    def open_group(self: Any, end_offset: int, leader_epoch: int, **limits: int) -> None:
        if leader_epoch > 0:
            bite()
        right(self, end_offset, max(leader_epoch - 1, 0), **limits)

    return open_group


def _count_twice(right: Any, bite: Bite) -> Any:
    """The end of the log is behind the last record."""

    def write_plain(self: Any, group: Any) -> None:
        right(self, group)
        bite()
        self.log_end_offset += 1

    return write_plain


SMALL_REQUEST_PLANTS: Final = (
    Plant(
        name="offsets of small requests are used twice",
        seed=1,
        finds=frozenset({"everything-is-read", "same-bytes"}),
        patches=((PlainGroup, "add", _reuse_offsets),),
        small_requests=True,
    ),
    Plant(
        name="small requests are stamped with the former epoch",
        seed=1,
        finds=frozenset({"seen-stays", "no-standstill"}),
        patches=((PlainGroup, "__init__", _stamp_the_former_epoch),),
        small_requests=True,
    ),
    Plant(
        name="the log end after small requests is wrong",
        seed=1,
        finds=frozenset({"no-standstill"}),
        patches=((LogWrites, "write_plain", _count_twice),),
        small_requests=True,
    ),
)
