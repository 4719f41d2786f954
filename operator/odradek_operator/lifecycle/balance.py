"""Even shares of replicas and leaders after brokers were added: which replicas move. Pure.

Enters: partitions, the brokers that shall share them, their racks. Leaves: targets of a portion. Called by `moves`.

*When.* Users may place replicas as they like, and the operator does not fight with them. It begins only where a broker
holds less than half of the mean, and two replicas less at least: that is how a broker looks that was added, and not how
one looks that chance or somebody's wish relieved a little. Once begun, it goes on to the end; `throttle` has the mark.

*How many.* Each move takes a replica from the broker with the most to the one with the fewest, as long as they differ
by two or more. So every broker ends within one of the mean, and no smaller number of moves brings that about: each
takes one from above the mean and gives it to below.

*Which.* A partition keeps its place in the list of replicas, and never loses a rack. Of those that may move it is one
of the topic that the two brokers share most unevenly, so that topics spread as well. Where racks forbid any move
between the two, the next pair is tried.

*Racks before shares.* First of all, where two replicas of a partition share a rack and another rack has none, one of
them goes there, as it would have been placed had the broker been there from the beginning. So the only broker of a
rack may end with more than the mean: what a rack is for counts more than what a disk holds.

*Leaders.* When replicas are even, the lists are put into another order where one broker is preferred by two or more
partitions beyond another, along the shortest chain of partitions that leads from the one to the other. That moves no
record.

Each portion follows from what is there, so the whole needs no plan that would be kept. It ends: with every step more
racks are covered, or as many and the sum of squares of shares falls. And a state that it has brought about is left
alone by it.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from odradek.base.types import TopicPartition
from odradek_operator.lifecycle.replicas import Partition

Replicas = tuple[int, ...]

_LEAST_SHORTAGE: Final = 2
"""Replicas below the mean; with so few as one, chance alone leaves brokers without."""


def is_due(partitions: Iterable[Partition], brokers: Sequence[int]) -> bool:
    """Whether a broker has so little that it must be new."""
    held = _held(partitions, brokers)
    total, least = sum(held.values()), min(held.values()) * len(brokers)
    return 2 * least < total and total - least >= _LEAST_SHORTAGE * len(brokers)


def replicas_to_move(partitions: Iterable[Partition], brokers: Sequence[int]) -> int:
    """How many replicas are too many where they are; racks may forbid some of the moves."""
    held = _held(partitions, brokers)
    low, rest = divmod(sum(held.values()), len(brokers))
    ranked = sorted(held.values(), reverse=True)
    return sum(max(0, count - low - (rank < rest)) for rank, count in enumerate(ranked))


def portion(
    partitions: Sequence[Partition],
    brokers: Sequence[int],
    racks: Mapping[int, str | None],
    *,
    live: Iterable[int],
    limit: int,
) -> dict[TopicPartition, Replicas]:
    """The next targets, of at most `limit` partitions; none where everything is even, or as even as racks allow.

    Partitions without a live leader, or with a broker that is not there, stay: their moves could not end.
    """
    alive = set(live)
    movable = {one.name: one.target for one in partitions if one.is_led(alive) and alive.issuperset(one.target)}
    spread = _Spread(movable, _held(partitions, brokers), brokers, racks)
    targets: dict[TopicPartition, Replicas] = {}
    # A move leaves no rack, so when no partition can gain one, none can after it.
    for step in (spread.gain_rack, spread.move):
        while len(targets) < limit and (moved := step()) is not None:
            targets[moved] = spread.replicas[moved]
    return targets or _leaders(partitions, movable, brokers, limit=limit)


def _held(partitions: Iterable[Partition], brokers: Iterable[int]) -> dict[int, int]:
    counts = Counter(broker for one in partitions for broker in one.target)
    return {broker: counts[broker] for broker in sorted(brokers)}


class _Spread:
    """Who holds what, changed move by move."""

    __slots__ = ("_aware", "_by_broker", "_by_topic", "_held", "_racks", "replicas")

    def __init__(
        self,
        movable: Mapping[TopicPartition, Replicas],
        held: Mapping[int, int],
        brokers: Sequence[int],
        racks: Mapping[int, str | None],
    ) -> None:
        self.replicas = dict(movable)
        self._held = dict(held)
        self._racks = racks
        self._aware = all(racks.get(broker) is not None for broker in brokers)
        self._by_broker: defaultdict[int, set[TopicPartition]] = defaultdict(set)
        self._by_topic: Counter[tuple[str, int]] = Counter()
        for name, replicas in movable.items():
            for broker in replicas:
                self._by_broker[broker].add(name)
                self._by_topic[name.topic, broker] += 1

    def gain_rack(self) -> TopicPartition | None:
        """Bring one partition into a rack where it is not yet, and say which; None when there is none left."""
        if not self._aware:
            return None
        best = min((gain for item in self.replicas.items() for gain in self._gains(*item)), default=None)
        if best is None:
            return None
        *_, name, source, sink = best
        self._carry_out(name, source, sink)
        return name

    def _gains(self, name: TopicPartition, replicas: Replicas) -> Iterator[tuple[int, int, TopicPartition, int, int]]:
        """Replicas that share a rack, and brokers of racks without any, the fullest and the emptiest first."""
        used = Counter(self._racks.get(broker) for broker in replicas)
        if len(used) == len(replicas):
            return
        sources = [broker for broker in replicas if used[self._racks.get(broker)] > 1 and broker in self._held]
        sinks = [broker for broker in self._held if self._racks[broker] not in used]
        for source in sources:
            for sink in sinks:
                uneven = self._by_topic[name.topic, sink] - self._by_topic[name.topic, source]
                yield self._held[sink] - self._held[source], uneven, name, source, sink

    def move(self) -> TopicPartition | None:
        """Carry one move out and say of which partition; None when there is none left."""
        fullest = sorted(self._held, key=lambda broker: (-self._held[broker], broker))
        emptiest = sorted(self._held, key=lambda broker: (self._held[broker], broker))
        for source in fullest:
            for sink in emptiest:
                if self._held[source] - self._held[sink] < 2:
                    break
                found = self._best(source, sink)
                if found is not None:
                    self._carry_out(found, source, sink)
                    return found
        return None

    def _best(self, source: int, sink: int) -> TopicPartition | None:
        fitting = [
            name
            for name in self._by_broker[source] - self._by_broker[sink]
            if self._keeps_racks(self.replicas[name], source, sink)
        ]
        return min(
            fitting,
            key=lambda name: (self._by_topic[name.topic, sink] - self._by_topic[name.topic, source], name),
            default=None,
        )

    def _keeps_racks(self, replicas: Replicas, source: int, sink: int) -> bool:
        if not self._aware:
            return True
        others = {self._racks.get(broker) for broker in replicas if broker != source}
        return self._racks[sink] not in others or self._racks[source] in others

    def _carry_out(self, name: TopicPartition, source: int, sink: int) -> None:
        self.replicas[name] = tuple(sink if broker == source else broker for broker in self.replicas[name])
        for broker, change in ((source, -1), (sink, 1)):
            self._held[broker] += change
            self._by_topic[name.topic, broker] += change
        self._by_broker[source].remove(name)
        self._by_broker[sink].add(name)


def _leaders(
    partitions: Iterable[Partition],
    movable: Mapping[TopicPartition, Replicas],
    brokers: Iterable[int],
    *,
    limit: int,
) -> dict[TopicPartition, Replicas]:
    """New orders that bring the numbers of preferred partitions within one of each other, as far as chains reach."""
    preferred = Counter(one.target[0] for one in partitions if one.target)
    led = {broker: preferred[broker] for broker in sorted(brokers)}
    orders = dict(movable)
    targets: dict[TopicPartition, Replicas] = {}
    while len(targets) < limit:
        chain = _chain(led, orders)
        if not chain:
            break
        # From the end on, so that what a full portion cuts off is the beginning: what was done is then a shorter chain.
        for name, successor in reversed(chain):
            if len(targets) == limit and name not in targets:
                break
            led[orders[name][0]] -= 1
            led[successor] += 1
            rest = tuple(broker for broker in orders[name] if broker != successor)
            orders[name] = targets[name] = (successor, *rest)
    return {name: order for name, order in targets.items() if order != movable[name]}


def _chain(
    led: Mapping[int, int], orders: Mapping[TopicPartition, Replicas]
) -> list[tuple[TopicPartition, int]] | None:
    """Partitions to hand on, each with its next leader, from a broker with many to one with two fewer, or more."""
    first_of: defaultdict[int, list[tuple[TopicPartition, Replicas]]] = defaultdict(list)
    for name, replicas in sorted(orders.items()):
        if replicas:
            first_of[replicas[0]].append((name, replicas[1:]))
    for source in sorted(led, key=lambda broker: (-led[broker], broker)):
        came: dict[int, tuple[int, TopicPartition] | None] = {source: None}
        queue = deque([source])
        while queue:
            broker = queue.popleft()
            for name, followers in first_of[broker]:
                for follower in followers:
                    if follower in came or follower not in led:
                        continue
                    came[follower] = (broker, name)
                    if led[source] - led[follower] >= 2:
                        return _trace(came, follower)
                    queue.append(follower)
    return None


def _trace(came: Mapping[int, tuple[int, TopicPartition] | None], end: int) -> list[tuple[TopicPartition, int]]:
    chain = []
    step = came[end]
    while step is not None:
        chain.append((step[1], end))
        end = step[0]
        step = came[end]
    return chain[::-1]
