"""What the clients of a simulation asked for and what they were told: the ground on which `verdict` judges.

`workload` writes, while the run goes on; `verdict` and the trace's digest read. Times are virtual milliseconds. What is
wrong at a glance, whatever the logs hold in the end, raises at once: a partition with two owners in a generation, a
reader that sees an offset twice. Invariant: an entry only grows; what was told is never taken back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Final

from odradek.base.types import TopicPartition
from odradek_testkit.simulation.errors import Violation

__all__ = ["AdminOutcome", "Answer", "Commit", "GroupHistory", "History", "Reading", "Sent", "Violation"]


class Answer(Enum):
    """What became of a request, as its client knows."""

    UNKNOWN = "unknown"
    """No answer: it may have been done, or be done yet."""
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    """An error. For a record this is no promise that it is not there: its first try may have been written."""


@dataclass(slots=True)
class Sent:
    """A record on its way. `record_id` is its value, by which it is known; `number` counts its producer's records."""

    record_id: bytes
    number: int
    topic: str
    partition: int | None
    """None while the client's partitioner decides."""
    answer: Answer = Answer.UNKNOWN
    offset: int = -1
    error: str = ""

    def acknowledged(self, partition: int, offset: int) -> None:
        """It is at `offset`; -1 when the broker does not say."""
        self.answer, self.partition, self.offset = Answer.ACKNOWLEDGED, partition, offset

    def refused(self, error: str) -> None:
        """Its producer gave it up."""
        self.answer, self.error = Answer.REFUSED, error


@dataclass(slots=True, kw_only=True)
class ProducerHistory:
    """What one producer sent, in its order."""

    name: str
    idempotent: bool
    """With `acks=all`: nothing may be lost, doubled or overtaken. Else `acks=1`: only what was never sent is wrong."""
    records: list[Sent] = field(default_factory=list)

    def send(self, topic: str, partition: int | None) -> Sent:
        """The next record."""
        number = len(self.records)
        sent = Sent(b"%s-%06d" % (self.name.encode(), number), number, topic, partition)
        self.records.append(sent)
        return sent

    def count(self, answer: Answer) -> int:
        """Records that ended so."""
        return sum(sent.answer is answer for sent in self.records)


@dataclass(slots=True, kw_only=True)
class Reading:
    """What one reader saw of one partition: the values by offset, and the highest watermark that it was told."""

    records: dict[int, bytes] = field(default_factory=dict)
    high_watermark: int = -1

    def saw(self, reader: str, partition: TopicPartition, offset: int, record_id: bytes) -> None:
        """A record. Raises `Violation` when it was seen before, or is not below what is said to be replicated."""
        if offset in self.records:
            raise Violation("seen-once", f"{reader} saw offset {offset} of {partition} again: {record_id!r}")
        if offset >= self.high_watermark:
            what = f"{reader} saw {record_id!r} at {offset} of {partition}, told a high watermark of"
            raise Violation("seen-replicated", f"{what} {self.high_watermark}")
        self.records[offset] = record_id


@dataclass(slots=True, kw_only=True)
class Commit:
    """One commit of an offset of one partition."""

    partition: TopicPartition
    offset: int
    began_ms: float
    ended_ms: float = inf
    """When the answer came; an unknown one may be done at any time."""
    answer: Answer = Answer.UNKNOWN


@dataclass(slots=True)
class GroupHistory:
    """One group: who owned what, what was handed out, what was committed."""

    clean: bool = True
    """No election is unclean. An unclean one can drop the newest records of the offsets topic, which the old leader had
    committed. The next coordinator then uses the number of a lost generation again."""
    owners: dict[tuple[int, TopicPartition], str] = field(default_factory=dict)
    """The member that was given a partition, by generation and partition."""
    handed: dict[TopicPartition, set[int]] = field(default_factory=dict)
    """Offsets of the records that any member got."""
    commits: dict[TopicPartition, list[Commit]] = field(default_factory=dict)

    def assigned(self, generation: int, member: str, partitions: tuple[TopicPartition, ...]) -> None:
        """A member got partitions. Raises `Violation` when another one has any of them in the same generation."""
        for partition in partitions:
            owner = self.owners.setdefault((generation, partition), member)
            if owner != member:
                what = f"{partition} was given to {owner} and to {member} in generation {generation}"
                if self.clean:
                    raise Violation("one-owner", what)
                self.owners[generation, partition] = member

    def got(self, partition: TopicPartition, offsets: list[int]) -> None:
        """Records were handed to a member."""
        self.handed.setdefault(partition, set()).update(offsets)

    def commit(self, offsets: Mapping[TopicPartition, int], now_ms: float) -> list[Commit]:
        """A commit begins; end it with `settle`."""
        begun = [
            Commit(partition=partition, offset=offset, began_ms=now_ms) for partition, offset in sorted(offsets.items())
        ]
        for commit in begun:
            self.commits.setdefault(commit.partition, []).append(commit)
        return begun

    @staticmethod
    def settle(commits: list[Commit], answer: Answer, now_ms: float) -> None:
        """The answer to a commit."""
        for commit in commits:
            commit.answer, commit.ended_ms = answer, now_ms

    def may_be_committed(self, partition: TopicPartition) -> set[int | None]:
        """What a fetch may say at the end: offsets that no acknowledged, later commit has replaced; None for none."""
        commits = self.commits.get(partition, [])
        possible = [commit for commit in commits if commit.answer is not Answer.REFUSED]
        last_began = max((c.began_ms for c in commits if c.answer is Answer.ACKNOWLEDGED), default=-inf)
        left: set[int | None] = {commit.offset for commit in possible if commit.ended_ms >= last_began}
        return left if last_began > -inf else left | {None}


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminOutcome:
    """An admin operation and its end: `error` is empty when it was done."""

    at_ms: float
    operation: str
    error: str = ""


class History:
    """Everything that the clients of one run know."""

    def __init__(self) -> None:
        """Nothing has happened."""
        self.producers: Final[dict[str, ProducerHistory]] = {}
        self.readings: Final[dict[str, dict[TopicPartition, Reading]]] = {}
        self.groups: Final[dict[str, GroupHistory]] = {}
        self.operations: Final[list[AdminOutcome]] = []

    def producer(self, name: str, *, idempotent: bool) -> ProducerHistory:
        """A new producer's history."""
        history = self.producers[name] = ProducerHistory(name=name, idempotent=idempotent)
        return history

    def reading(self, reader: str, partition: TopicPartition) -> Reading:
        """What a reader saw of a partition until now."""
        return self.readings.setdefault(reader, {}).setdefault(partition, Reading())

    def group(self, group_id: str, *, clean: bool = True) -> GroupHistory:
        """A group's history; `clean` counts when it is new."""
        return self.groups.setdefault(group_id, GroupHistory(clean=clean))

    def count(self, answer: Answer) -> int:
        """Records of all producers that ended so."""
        return sum(producer.count(answer) for producer in self.producers.values())

    def lines(self) -> list[str]:
        """All of it as text, for a digest: equal runs give equal lines."""
        found: list[str] = []
        for producer in self.producers.values():
            found.extend(
                f"{sent.record_id!r} {sent.partition} {sent.answer.value} {sent.offset} {sent.error}"
                for sent in producer.records
            )
        for reader, readings in self.readings.items():
            for partition, reading in readings.items():
                found.append(f"{reader} {partition} {len(reading.records)} {reading.high_watermark}")
        for group_id, group in self.groups.items():
            found.extend(
                f"{group_id} {generation} {part} {owner}" for (generation, part), owner in group.owners.items()
            )
            for commits in group.commits.values():
                found.extend(f"{group_id} {c.partition} {c.offset} {c.answer.value} {c.ended_ms:.4f}" for c in commits)
        found.extend(f"{outcome.at_ms:.4f} {outcome.operation} {outcome.error}" for outcome in self.operations)
        return found
