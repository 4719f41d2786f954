"""What the brokers' Metadata answers told of one topic, and when: leaders that moved, replicas that are in sync. Pure.

`watching` adds answers in the order of their times; `running` asks. Invariant: of a partition only the newest leader
epoch counts, whichever broker told it, so an answer from a broker that lags cannot bring a deposed leader back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from odradek.client.metadata import PartitionView

NO_LEADER: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One broker's picture. Times are monotonic, in seconds."""

    asked: float
    told: float
    partitions: Mapping[int, PartitionView]


class Move(NamedTuple):
    """A partition got a leader, or lost it."""

    told: float
    partition: int
    leader: int


class Sightings:
    """Everything that was told of one topic."""

    def __init__(self, brokers: int, partitions: int) -> None:
        """How many there are of each; every partition has a replica on every broker."""
        self._brokers: Final = brokers
        self.partitions: Final = partitions
        self._answers: Final[dict[int, Answer]] = {}
        self._newest: Final[dict[int, PartitionView]] = {}
        self._moves: list[Move] = []

    def see(self, broker: int, answer: Answer) -> None:
        """A broker told this."""
        self._answers[broker] = answer
        for number, view in answer.partitions.items():
            known = self._newest.get(number)
            if known is None or view.leader_epoch > known.leader_epoch:
                self._moves.append(Move(answer.told, number, view.leader))
            if known is None or view.leader_epoch >= known.leader_epoch:
                self._newest[number] = view

    def forget_moves(self) -> None:
        """What moved so far is asked for no more."""
        self._moves.clear()

    def led_by(self, broker: int) -> list[int]:
        """Partitions whose newest leader is this broker."""
        return sorted(number for number, view in self._newest.items() if view.leader == broker)

    def elsewhere_ms(self, partitions: Iterable[int], broker: int, begin: float) -> list[float]:
        """For each partition that got another leader than this broker: when it was first told, after `begin`."""
        first: dict[int, float] = {}
        for move in self._moves:
            if move.told > begin and move.leader not in (broker, NO_LEADER):
                first.setdefault(move.partition, (move.told - begin) * 1000)
        return [first[partition] for partition in partitions if partition in first]

    def is_whole(self, since: float) -> bool:
        """Whether every broker, asked since then, knows each partition's newest leader and all replicas in sync."""
        return len(self._newest) == self.partitions and all(
            self._is_whole_at(broker, since) for broker in range(self._brokers)
        )

    def _is_whole_at(self, broker: int, since: float) -> bool:
        answer = self._answers.get(broker)
        return (
            answer is not None
            and answer.asked >= since
            and len(answer.partitions) == self.partitions
            and all(
                view.leader != NO_LEADER
                and len(view.isr) == self._brokers
                and view.leader_epoch == self._newest[number].leader_epoch
                for number, view in answer.partitions.items()
            )
        )

    def lacks(self) -> str:
        """What is not whole by the newest answers, as the end of a sentence."""
        silent = sorted(set(range(self._brokers)) - self._answers.keys())
        leaderless = [number for number, view in self._newest.items() if view.leader == NO_LEADER]
        short = [number for number, view in self._newest.items() if len(view.isr) < self._brokers]
        return (
            f"brokers that never answered: {silent}, partitions without a leader: {sorted(leaderless)}, "
            f"with a replica out of sync: {sorted(short)}"
        )

    def unbalanced(self) -> list[int]:
        """Partitions that are not led by their first replica."""
        return sorted(n for n, view in self._newest.items() if not view.replicas or view.leader != view.replicas[0])
