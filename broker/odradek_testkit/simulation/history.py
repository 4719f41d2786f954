"""Records the requests of the clients of a simulation and their answers, which `verdict` checks.

`workload` writes it during the run; `verdict` and the digest of the trace read it. Times are virtual milliseconds.
Violations that do not depend on the final logs raise an error at once: a partition with two owners in one generation,
or a reader that sees an offset twice. Invariant: entries are only added to; an answer is never changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Final

from odradek.base.types import TopicPartition
from odradek_testkit.simulation.errors import Violation
from odradek_testkit.simulation.transactions.transaction_history import TransactionsHistory

__all__ = ["AdminOutcome", "Answer", "Commit", "GroupHistory", "History", "Reading", "Sent", "Violation"]


class Answer(Enum):
    """The outcome of a request, as far as its client knows."""

    UNKNOWN = "unknown"
    """No answer: the request may have been carried out, or may still be."""
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    """An error. A record may nevertheless be in the log: its first attempt may have been written."""


@dataclass(slots=True)
class Sent:
    """A sent record. `record_id` is its value, which identifies it; `number` counts its producer's records."""

    record_id: bytes
    number: int
    topic: str
    partition: int | None
    """None until the client's partitioner has decided."""
    answer: Answer = Answer.UNKNOWN
    offset: int = -1
    error: str = ""

    def acknowledged(self, partition: int, offset: int) -> None:
        """Record that it was acknowledged at `offset`; -1 if the broker did not return an offset."""
        self.answer, self.partition, self.offset = Answer.ACKNOWLEDGED, partition, offset

    def refused(self, error: str) -> None:
        """Record that the producer gave up."""
        self.answer, self.error = Answer.REFUSED, error


@dataclass(slots=True, kw_only=True)
class ProducerHistory:
    """The records of one producer, in order."""

    name: str
    idempotent: bool
    """Whether it uses `acks=all`: no record may be lost, duplicated or reordered. With `acks=1` only records that were
    never sent are a violation."""
    records: list[Sent] = field(default_factory=list)

    def send(self, topic: str, partition: int | None) -> Sent:
        """Add the next record."""
        number = len(self.records)
        sent = Sent(b"%s-%06d" % (self.name.encode(), number), number, topic, partition)
        self.records.append(sent)
        return sent

    def count(self, answer: Answer) -> int:
        """Return the number of records with this outcome."""
        return sum(sent.answer is answer for sent in self.records)


@dataclass(slots=True, kw_only=True)
class Reading:
    """What one reader saw of one partition: values by offset, and the largest high watermark that it received."""

    records: dict[int, bytes] = field(default_factory=dict)
    high_watermark: int = -1

    def note_read(self, reader: str, partition: TopicPartition, offset: int, record_id: bytes) -> None:
        """Add a record. Raises `Violation` if it was seen before, or is not below the high watermark."""
        if offset in self.records:
            raise Violation("seen-once", f"{reader} saw offset {offset} of {partition} again: {record_id!r}")
        if offset >= self.high_watermark:
            what = f"{reader} saw {record_id!r} at {offset} of {partition}, with a high watermark of"
            raise Violation("seen-replicated", f"{what} {self.high_watermark}")
        self.records[offset] = record_id


@dataclass(slots=True, kw_only=True)
class Commit:
    """One commit of an offset of one partition."""

    partition: TopicPartition
    offset: int
    began_ms: float
    ended_ms: float = inf
    """When the answer arrived; a commit without an answer may be carried out at any time."""
    answer: Answer = Answer.UNKNOWN


@dataclass(slots=True)
class GroupHistory:
    """One group: owners of partitions, delivered records, and commits."""

    clean: bool = True
    """Whether there is no unclean election. An unclean election can lose the newest committed records of the offsets
    topic; the next coordinator then uses the number of a lost generation again."""
    owners: dict[tuple[int, TopicPartition], str] = field(default_factory=dict)
    """The owner of a partition, by generation and partition."""
    newest: dict[TopicPartition, tuple[int, str]] = field(default_factory=dict)
    """The highest generation in which a partition was assigned, and its owner."""
    overtaken: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Members that had a partition after a later generation had assigned it to another one: this generation, and what
    happened. It is no violation if the group has removed the member before."""
    handed: dict[TopicPartition, set[int]] = field(default_factory=dict)
    """Offsets of the records that any member received."""
    commits: dict[TopicPartition, list[Commit]] = field(default_factory=dict)

    def assigned(self, generation: int, member: str, partitions: tuple[TopicPartition, ...]) -> None:
        """Record the partitions of a member.

        Raises `Violation` if another member owns a partition in the same generation, or if another one got a partition
        in a generation before this member gave it up, although the group did not remove this member.
        """
        later, what = self.overtaken.get(member, (generation + 1, ""))
        if generation >= later and self.clean:
            raise Violation("one-owner", what)
        for partition in partitions:
            newest, holder = self.newest.get(partition, (0, member))
            if generation < newest and holder != member:
                self.overtaken[member] = newest, f"{member} had {partition} when {holder} got it in generation {newest}"
            elif generation >= newest:
                self.newest[partition] = generation, member
            owner = self.owners.setdefault((generation, partition), member)
            if owner != member:
                what = f"{partition} was assigned to {owner} and to {member} in generation {generation}"
                if self.clean:
                    raise Violation("one-owner", what)
                self.owners[generation, partition] = member

    def removed(self, member: str) -> None:
        """Record that a member knows that the group has removed it."""
        self.overtaken.pop(member, None)

    def got(self, partition: TopicPartition, offsets: list[int]) -> None:
        """Record that a member received records."""
        self.handed.setdefault(partition, set()).update(offsets)

    def commit(self, offsets: Mapping[TopicPartition, int], now_ms: float) -> list[Commit]:
        """Record the start of a commit; `settle` records its end."""
        begun = [
            Commit(partition=partition, offset=offset, began_ms=now_ms) for partition, offset in sorted(offsets.items())
        ]
        for commit in begun:
            self.commits.setdefault(commit.partition, []).append(commit)
        return begun

    @staticmethod
    def settle(commits: list[Commit], answer: Answer, now_ms: float) -> None:
        """Record the answer to a commit."""
        for commit in commits:
            commit.answer, commit.ended_ms = answer, now_ms

    def may_be_committed(self, partition: TopicPartition) -> set[int | None]:
        """Return the possible committed offsets at the end: those that no later acknowledged commit replaced.

        None stands for no offset."""
        commits = self.commits.get(partition, [])
        possible = [commit for commit in commits if commit.answer is not Answer.REFUSED]
        last_began = max((c.began_ms for c in commits if c.answer is Answer.ACKNOWLEDGED), default=-inf)
        left: set[int | None] = {commit.offset for commit in possible if commit.ended_ms >= last_began}
        return left if last_began > -inf else left | {None}


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminOutcome:
    """An admin operation and its result: `error` is empty if it succeeded."""

    at_ms: float
    operation: str
    error: str = ""


class History:
    """The histories of all clients of one run."""

    def __init__(self) -> None:
        """Create an empty history."""
        self.producers: Final[dict[str, ProducerHistory]] = {}
        self.readings: Final[dict[str, dict[TopicPartition, Reading]]] = {}
        self.groups: Final[dict[str, GroupHistory]] = {}
        self.operations: Final[list[AdminOutcome]] = []
        self.transactions: Final = TransactionsHistory()

    def producer(self, name: str, *, idempotent: bool) -> ProducerHistory:
        """Return the history of a new producer."""
        history = self.producers[name] = ProducerHistory(name=name, idempotent=idempotent)
        return history

    def reading(self, reader: str, partition: TopicPartition) -> Reading:
        """Return what a reader has seen of a partition so far."""
        return self.readings.setdefault(reader, {}).setdefault(partition, Reading())

    def group(self, group_id: str, *, clean: bool = True) -> GroupHistory:
        """Return a group's history; `clean` is used if it is new."""
        return self.groups.setdefault(group_id, GroupHistory(clean=clean))

    def count(self, answer: Answer) -> int:
        """Return the number of records of all producers with this outcome."""
        return sum(producer.count(answer) for producer in self.producers.values())

    def lines(self) -> list[str]:
        """Return the history as text, for a digest: equal runs have equal lines."""
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
        found.extend(self.transactions.lines())
        found.extend(f"{outcome.at_ms:.4f} {outcome.operation} {outcome.error}" for outcome in self.operations)
        return found
