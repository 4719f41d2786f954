"""Compares what producers sent with what a consumer read; pure.

The two processes of the load write the acknowledgements and records, and the load computes a `Verdict` from them.

Each producer numbers its records in each partition from 0. An acknowledged record must exist exactly once. A record
whose delivery failed may exist once or not at all. All records that exist must be in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Final, Self

Stream = tuple[str, int]
"""A producer's name and a partition."""

_EXAMPLES: Final = 20


@dataclass(slots=True)
class Written:
    """What one producer knows of one partition: how many records it sent, and which were not acknowledged."""

    sent: int = 0
    failed: set[int] = field(default_factory=set)

    def acknowledged(self) -> int:
        """The number of acknowledged records."""
        return self.sent - len(self.failed)


@dataclass(slots=True)
class Seen:
    """What a consumer has read of one stream, record by record."""

    last: int = -1
    gaps: list[tuple[int, int]] = field(default_factory=list)
    doubled: list[int] = field(default_factory=list)
    reordered: list[int] = field(default_factory=list)

    def see(self, sequence: int) -> None:
        """Add the next record of the stream.

        A number below the highest so far is late if it was missing. Otherwise it is a duplicate, like the highest
        number itself.
        """
        if sequence > self.last:
            if sequence > self.last + 1:
                self.gaps.append((self.last + 1, sequence))
            self.last = sequence
            return
        for index, (start, end) in enumerate(self.gaps):
            if start <= sequence < end:
                rest = [(start, sequence), (sequence + 1, end)]
                self.gaps[index : index + 1] = [gap for gap in rest if gap[0] < gap[1]]
                self.reordered.append(sequence)
                return
        self.doubled.append(sequence)

    def missing(self, written: Written) -> list[int]:
        """The acknowledged numbers that were never read."""
        holes = [*self.gaps, (self.last + 1, written.sent)]
        return [number for start, end in holes for number in range(start, end) if number not in written.failed]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of a load. The three lists contain examples of lost, duplicated and reordered records."""

    acknowledged: int
    failed: int
    seen: int
    lost: tuple[str, ...]
    doubled: tuple[str, ...]
    reordered: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Return whether nothing is lost, duplicated or reordered."""
        return not (self.lost or self.doubled or self.reordered)

    def __str__(self) -> str:
        """The text for the message of a failed assertion."""
        return ", ".join(f"{name}: {value}" for name, value in asdict(self).items())


def judge(written: Mapping[Stream, Written], seen: Mapping[Stream, Seen], count: int) -> Verdict:
    """Compare what was written with what was read. `count` is the number of records that the consumer read."""
    lost: list[str] = []
    doubled: list[str] = []
    reordered: list[str] = []
    for stream in sorted({*written, *seen}):
        ours, theirs = written.get(stream, Written()), seen.get(stream, Seen())
        lost += _named(stream, theirs.missing(ours))
        doubled += _named(stream, theirs.doubled)
        reordered += _named(stream, theirs.reordered)
    return Verdict(
        acknowledged=sum(entry.acknowledged() for entry in written.values()),
        failed=sum(len(entry.failed) for entry in written.values()),
        seen=count,
        lost=tuple(lost[:_EXAMPLES]),
        doubled=tuple(doubled[:_EXAMPLES]),
        reordered=tuple(reordered[:_EXAMPLES]),
    )


def _named(stream: Stream, numbers: Iterable[int]) -> list[str]:
    producer, partition = stream
    return [f"{producer}/{partition}:{number}" for number in numbers]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The report of a producer or a consumer, which it writes to a file. `longest_pause` is in seconds."""

    streams: Mapping[Stream, Written | Seen]
    count: int
    longest_pause: float

    def plain(self) -> dict[str, object]:
        """The report as a value for JSON."""
        streams = []
        for (producer, partition), entry in self.streams.items():
            kind = "written" if isinstance(entry, Written) else "seen"
            values = {name: sorted(value) if isinstance(value, set) else value for name, value in asdict(entry).items()}
            streams.append({"producer": producer, "partition": partition, "kind": kind, **values})
        return {"streams": streams, "count": self.count, "longest_pause": self.longest_pause}

    @classmethod
    def parse(cls, plain: Mapping[str, object]) -> Self:
        """Return the report from a JSON value."""
        streams: dict[Stream, Written | Seen] = {}
        entries = plain["streams"]
        assert isinstance(entries, list)
        for entry in entries:
            stream = (entry["producer"], entry["partition"])
            if entry["kind"] == "written":
                streams[stream] = Written(sent=entry["sent"], failed=set(entry["failed"]))
            else:
                gaps = [(start, end) for start, end in entry["gaps"]]
                streams[stream] = Seen(entry["last"], gaps, entry["doubled"], entry["reordered"])
        count, pause = plain["count"], plain["longest_pause"]
        assert isinstance(count, int) and isinstance(pause, float)
        return cls(streams=streams, count=count, longest_pause=pause)
