"""Evaluates the Metadata responses of brokers about one topic: changes of leaders, ISRs. Pure.

`watching` adds responses in the order of time, and `running` queries the state. Invariant: only the newest leader epoch
of a partition counts, and any broker may report it. So a response of a broker that lags does not restore a previous
leader.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from odradek.client.metadata import PartitionView

NO_LEADER: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The metadata of one broker. Times are monotonic, in seconds."""

    requested: float
    answered: float
    partitions: Mapping[int, PartitionView]


class Move(NamedTuple):
    """A partition got or lost a leader."""

    answered: float
    partition: int
    leader: int


class Sightings:
    """The state of one topic according to all responses."""

    def __init__(self, brokers: int, partitions: int) -> None:
        """Numbers of partitions and brokers. Every partition has a replica on every broker."""
        self._brokers: Final = brokers
        self.partitions: Final = partitions
        self._answers: Final[dict[int, Answer]] = {}
        self._newest: Final[dict[int, PartitionView]] = {}
        self._moves: list[Move] = []

    def see(self, broker: int, answer: Answer) -> None:
        """Add a response of a broker."""
        self._answers[broker] = answer
        for number, view in answer.partitions.items():
            known = self._newest.get(number)
            if known is None or view.leader_epoch > known.leader_epoch:
                self._moves.append(Move(answer.answered, number, view.leader))
            if known is None or view.leader_epoch >= known.leader_epoch:
                self._newest[number] = view

    def forget_moves(self) -> None:
        """Forget the changes of leaders so far."""
        self._moves.clear()

    def led_by(self, broker: int) -> list[int]:
        """Return the partitions whose newest leader is this broker."""
        return sorted(number for number, view in self._newest.items() if view.leader == broker)

    def elsewhere_ms(self, partitions: Iterable[int], broker: int, begin: float) -> list[float]:
        """Return, for each partition that got another leader than this broker, the time from `begin` to the first
        response."""
        first: dict[int, float] = {}
        for move in self._moves:
            if move.answered > begin and move.leader not in (broker, NO_LEADER):
                first.setdefault(move.partition, (move.answered - begin) * 1000)
        return [first[partition] for partition in partitions if partition in first]

    def is_whole(self, since: float) -> bool:
        """Return whether all brokers, in responses since then, have each partition's newest leader and all replicas in
        sync."""
        return len(self._newest) == self.partitions and all(
            self._is_whole_at(broker, since) for broker in range(self._brokers)
        )

    def _is_whole_at(self, broker: int, since: float) -> bool:
        answer = self._answers.get(broker)
        return (
            answer is not None
            and answer.requested >= since
            and len(answer.partitions) == self.partitions
            and all(
                view.leader != NO_LEADER
                and len(view.isr) == self._brokers
                and view.leader_epoch == self._newest[number].leader_epoch
                for number, view in answer.partitions.items()
            )
        )

    def lacks(self) -> str:
        """Return what is missing according to the newest responses, as the end of a message."""
        silent = sorted(set(range(self._brokers)) - self._answers.keys())
        leaderless = [number for number, view in self._newest.items() if view.leader == NO_LEADER]
        short = [number for number, view in self._newest.items() if len(view.isr) < self._brokers]
        return (
            f"brokers that never answered: {silent}, partitions without a leader: {sorted(leaderless)}, "
            f"with a replica out of sync: {sorted(short)}"
        )

    def unbalanced(self) -> list[int]:
        """Return the partitions that do not have their preferred leader."""
        return sorted(n for n, view in self._newest.items() if not view.replicas or view.leader != view.replicas[0])
