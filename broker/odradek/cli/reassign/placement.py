"""Computes which replicas move to which brokers, with as few moves as possible. Pure.

`reassign plan` passes the replicas of partitions and the brokers that may hold them, and gets the partitions that
change with their new replicas.

*Required moves.* A replica on a broker that may not hold it moves. The new replica gets its position in the list, so
that the new broker also becomes the preferred leader of the partitions that the old one preferred. A larger replication
factor adds replicas at the end, a smaller one removes the last ones first.

*Where to.* A rack that has no replica of the partition comes first, then the broker with the fewest replicas, then the
broker with the fewest replicas of the topic. Racks count only if every broker has one.

*Balance.* If it is requested, replicas first move to racks that have none of their partition. Then each move takes a
replica from the broker with the most replicas to the one with the fewest, while they differ by at least two. No move
loses a rack. At the end, replica lists are reordered so that brokers are preferred leaders of similar numbers of
partitions; that copies no records.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from odradek.base.errors import InvalidReplicaAssignmentError, InvalidReplicationFactorError
from odradek.base.types import TopicPartition

Replicas = tuple[int, ...]


def plan_moves(
    current: Mapping[TopicPartition, Sequence[int]],
    brokers: Mapping[int, str | None],
    *,
    replication_factor: int | None = None,
    balance: bool = False,
) -> dict[TopicPartition, Replicas]:
    """Return the new replicas of the partitions that change.

    `brokers` maps those that may hold replicas to their racks. `replication_factor` is that of all partitions at the
    end; by default each keeps its own. Raises `InvalidReplicaAssignmentError` without brokers, and
    `InvalidReplicationFactorError` if there are fewer brokers than a partition needs.
    """
    if not brokers:
        raise InvalidReplicaAssignmentError("no broker is left that may hold replicas")
    placement = _Placement(current, brokers)
    for name in sorted(current):
        wanted = len(current[name]) if replication_factor is None else replication_factor
        if wanted > len(brokers):
            raise InvalidReplicationFactorError(
                f"{name} needs {wanted} brokers, but only {len(brokers)} may hold replicas"
            )
        placement.require(name, wanted)
    if balance:
        placement.cover_racks()
        placement.even_out()
        placement.even_out_leaders()
    return {name: new for name, new in placement.replicas.items() if new != tuple(current[name])}


class _Placement:
    """The replicas of each partition and the number of replicas of each broker, updated with every move."""

    def __init__(self, current: Mapping[TopicPartition, Sequence[int]], brokers: Mapping[int, str | None]) -> None:
        self.replicas: dict[TopicPartition, Replicas] = {name: tuple(each) for name, each in sorted(current.items())}
        aware = all(rack is not None for rack in brokers.values())
        self._racks = {broker: rack if aware else "" for broker, rack in brokers.items()}
        self._held = Counter(broker for each in self.replicas.values() for broker in each)
        self._on: defaultdict[int, set[TopicPartition]] = defaultdict(set)
        for name, each in self.replicas.items():
            for broker in each:
                self._on[broker].add(name)
        self._by_topic = Counter((name.topic, broker) for name, each in self.replicas.items() for broker in each)

    def require(self, name: TopicPartition, wanted: int) -> None:
        """Give a partition the wanted number of replicas, all on brokers that may hold them."""
        replicas = list(self.replicas[name])
        while len(replicas) > wanted:
            replicas.remove(self._superfluous(replicas))
        for position, broker in enumerate(replicas):
            if broker not in self._racks:
                others = [each for each in replicas if each != broker]
                replicas[position] = self._destination(name, others)
        while len(replicas) < wanted:
            replicas.append(self._destination(name, replicas))
            self._set(name, replicas)
        self._set(name, replicas)

    def _superfluous(self, replicas: Sequence[int]) -> int:
        """Return the replica to remove: one that may not stay, one that shares its rack, else the last one."""
        used = Counter(self._racks.get(broker) for broker in replicas)

        def preference(broker: int) -> tuple[bool, bool, int]:
            is_first = broker == replicas[0]
            shares = used[self._racks.get(broker)] > 1 and not is_first
            return broker not in self._racks, shares, replicas.index(broker)

        return max(replicas, key=preference)

    def _destination(self, name: TopicPartition, others: Iterable[int]) -> int:
        """Return the broker for another replica. `others` are the partition's other replicas."""
        taken = set(others)
        used = Counter(self._racks.get(broker) for broker in taken)
        return min(
            (broker for broker in self._racks if broker not in taken),
            key=lambda broker: (
                used[self._racks[broker]],
                self._held[broker],
                self._by_topic[name.topic, broker],
                broker,
            ),
        )

    def _set(self, name: TopicPartition, replicas: Sequence[int]) -> None:
        for change, brokers in ((-1, self.replicas[name]), (1, tuple(replicas))):
            for broker in brokers:
                self._held[broker] += change
                self._by_topic[name.topic, broker] += change
        for broker in self.replicas[name]:
            self._on[broker].discard(name)
        for broker in replicas:
            self._on[broker].add(name)
        self.replicas[name] = tuple(replicas)

    def _move(self, name: TopicPartition, source: int, sink: int) -> None:
        self._set(name, [sink if broker == source else broker for broker in self.replicas[name]])

    def cover_racks(self) -> None:
        """Move replicas that share a rack with another one of their partition to racks without one."""
        racks = set(self._racks.values())
        for name in self.replicas:
            while True:
                replicas = self.replicas[name]
                used = Counter(self._racks[broker] for broker in replicas)
                sharing = [broker for broker in replicas if used[self._racks[broker]] > 1]
                if not sharing or len(used) == len(racks):
                    break
                source = max(sharing, key=lambda broker: (self._held[broker], broker))
                self._move(name, source, self._destination(name, replicas))

    def even_out(self) -> None:
        """Move replicas from the brokers with the most to those with the fewest. Each move reduces the sum of the
        squared numbers, so this ends."""
        while (move := next(self._moves(), None)) is not None:
            self._move(*move)

    def _moves(self) -> Iterator[tuple[TopicPartition, int, int]]:
        """Yield possible moves, those between the most different brokers first."""
        fullest = sorted(self._racks, key=lambda broker: (-self._held[broker], broker))
        for source in fullest:
            for sink in reversed(fullest):
                if self._held[source] - self._held[sink] < 2:
                    break
                fitting = [
                    name
                    for name in self._on[source] - self._on[sink]
                    if self._keeps_racks(self.replicas[name], source, sink)
                ]
                if fitting:
                    # A topic that is distributed most unevenly between the two brokers gains most.
                    yield min(fitting, key=lambda name: (self._unevenness(name, source, sink), name)), source, sink

    def _unevenness(self, name: TopicPartition, source: int, sink: int) -> int:
        return self._by_topic[name.topic, sink] - self._by_topic[name.topic, source]

    def _keeps_racks(self, replicas: Replicas, source: int, sink: int) -> bool:
        others = {self._racks[broker] for broker in replicas if broker != source}
        return self._racks[sink] not in others or self._racks[source] in others

    def even_out_leaders(self) -> None:
        """Put another replica first where that makes the numbers of preferred leaders more similar."""
        led = Counter(replicas[0] for replicas in self.replicas.values() if replicas)
        changed = True
        while changed:
            changed = False
            for name, replicas in self.replicas.items():
                if len(replicas) < 2:
                    continue
                first, other = replicas[0], min(replicas[1:], key=lambda broker: (led[broker], broker))
                if led[first] - led[other] >= 2:
                    led[first] -= 1
                    led[other] += 1
                    rest = (broker for broker in replicas if broker != other)
                    self.replicas[name] = (other, *rest)
                    changed = True
