"""Balances replicas and preferred leaders over brokers after brokers were added. Pure.

`moves` passes the partitions, the brokers, their racks, machines and pods, and gets the target replicas of the next
portion.

*When.* Users may place replicas as they like, and the operator respects that. Balancing starts only if a broker has
less than half of the mean number of replicas, and at least two fewer: that is typical of a new broker, but not of
small manual changes. Once started, it continues to the end; `throttle` records that it is in progress.

*How many.* Each move takes a replica from the broker with the most replicas to the broker with the fewest, while they
differ by two or more. Every broker ends within one replica of the mean, with the smallest number of moves.

*Which.* The moved replica keeps its position in the replica list, and the partition never loses a rack, a machine or
a pod.
Among the candidates, a partition of the topic that is distributed most unevenly between the two brokers is chosen, so
that topics are spread as well. If racks and machines allow no move between the two brokers, the next pair is tried.

*Racks first.* If two replicas of a partition are in the same rack and another rack has none, one of them moves there
first. The only broker of a rack may therefore end with more replicas than the mean: rack safety has priority.

*Machines next.* If several brokers run on one machine, the same is done for machines, without losing a rack. A broker
whose machine is unknown counts as the only one on its machine.

*Pods last.* If pods have several brokers, replicas of a partition move to pods with at least two replicas fewer of it,
without losing a rack or a machine. Machines alone do not suffice: two pods may run on one node, and if a partition has
more replicas than there are nodes, one pod could get two of them while another has none. A pod restarts as a whole.

*Leaders.* When replicas are balanced, replica lists are reordered if one broker is the preferred leader of at least two
partitions more than another, along the shortest chain of partitions between them. No records move.

Each portion is computed from the current state, so no plan has to be stored. Balancing terminates: every step covers
more racks, or as many racks and more machines, or as many of both with replicas spread more evenly over pods, or the
same with a smaller sum of squared shares. A balanced
state causes no moves.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from odradek.base.topic_rules import machine_of_each
from odradek.base.types import TopicPartition
from odradek_operator.lifecycle.replicas import Partition

Replicas = tuple[int, ...]
Groups = Mapping[int, str | int | None]
"""The rack, machine or pod of each broker; None for all brokers if racks do not matter."""

_LEAST_SHORTAGE: Final = 2
"""A broker must have at least this many replicas fewer than the mean: one fewer can be chance."""


def is_due(partitions: Iterable[Partition], brokers: Sequence[int]) -> bool:
    """Whether a broker has so few replicas that it must be new."""
    held = _held(partitions, brokers)
    total, least = sum(held.values()), min(held.values()) * len(brokers)
    return 2 * least < total and total - least >= _LEAST_SHORTAGE * len(brokers)


def replicas_to_move(partitions: Iterable[Partition], brokers: Sequence[int]) -> int:
    """Return how many replicas brokers have above an even share. Racks may forbid some of the moves."""
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
    machines: Mapping[int, str] | None = None,
    pods: Mapping[int, int] | None = None,
) -> dict[TopicPartition, Replicas]:
    """Return the next target replicas of up to `limit` partitions; none if the state is as even as racks allow.

    `machines` maps brokers to the machines on which they run, as for `assign_replicas`. `pods` maps brokers to numbers
    of pods; a broker without an entry has a pod to itself.
    Partitions without a live leader or with a missing broker do not move, because their moves could not complete.
    """
    movable = _movable(partitions, live)
    spread = _Spread(movable, _held(partitions, brokers), racks, machines or {}, pods or {})
    targets: dict[TopicPartition, Replicas] = {}
    # Each step keeps what the steps before it have gained.
    for step in (spread.gain_rack, spread.gain_machine, spread.gain_pod, spread.move):
        while len(targets) < limit and (moved := step()) is not None:
            targets[moved] = spread.replicas[moved]
    return targets or _leaders(partitions, movable, brokers, limit=limit)


def moved_apart(
    partitions: Sequence[Partition],
    brokers: Sequence[int],
    racks: Mapping[int, str | None],
    *,
    machines: Mapping[int, str],
    pods: Mapping[int, int],
    limit: int,
) -> dict[TopicPartition, Replicas]:
    """Return target replicas of up to `limit` partitions that have several replicas on one machine or in one pod,
    although another machine or pod of these live brokers has none. Racks are kept.

    If a partition has more replicas than there are pods, the numbers of its replicas in two pods differ by at most one
    afterwards.
    """
    movable = _movable(partitions, brokers)
    spread = _Spread(movable, _held(partitions, brokers), racks, machines, pods)
    targets: dict[TopicPartition, Replicas] = {}
    for step in (spread.gain_machine, spread.gain_pod):
        while len(targets) < limit and (moved := step()) is not None:
            targets[moved] = spread.replicas[moved]
    return targets


def _movable(partitions: Iterable[Partition], live: Iterable[int]) -> dict[TopicPartition, Replicas]:
    """Return the replicas of the partitions whose move can complete."""
    alive = set(live)
    return {one.name: one.target for one in partitions if one.is_led(alive) and alive.issuperset(one.target)}


def _held(partitions: Iterable[Partition], brokers: Iterable[int]) -> dict[int, int]:
    counts = Counter(broker for one in partitions for broker in one.target)
    return {broker: counts[broker] for broker in sorted(brokers)}


class _Spread:
    """The replicas of each broker, updated with every move."""

    __slots__ = ("_by_broker", "_by_topic", "_held", "_machines", "_pods", "_racks", "replicas")

    def __init__(
        self,
        movable: Mapping[TopicPartition, Replicas],
        held: Mapping[int, int],
        racks: Mapping[int, str | None],
        machines: Mapping[int, str],
        pods: Mapping[int, int],
    ) -> None:
        """`held` has every broker. Racks count only if every broker has one."""
        self.replicas = dict(movable)
        self._held = dict(held)
        everywhere = {*held, *(broker for replicas in movable.values() for broker in replicas)}
        aware = all(racks.get(broker) is not None for broker in held)
        self._racks: Groups = {broker: racks.get(broker) if aware else None for broker in everywhere}
        self._machines: Groups = machine_of_each(everywhere, machines)
        self._pods: Groups = {broker: pods.get(broker, -1 - broker) for broker in everywhere}
        self._by_broker: defaultdict[int, set[TopicPartition]] = defaultdict(set)
        self._by_topic: Counter[tuple[str, int]] = Counter()
        for name, replicas in movable.items():
            for broker in replicas:
                self._by_broker[broker].add(name)
                self._by_topic[name.topic, broker] += 1

    def gain_rack(self) -> TopicPartition | None:
        """Move one partition to a rack that it does not cover yet. Returns the partition, None if there is none."""
        return self._gain(self._racks)

    def gain_machine(self) -> TopicPartition | None:
        """Move one partition to a machine that it does not cover yet, without losing a rack. Returns the partition,
        None if there is none."""
        return self._gain(self._machines)

    def gain_pod(self) -> TopicPartition | None:
        """Move a replica of one partition to a pod with at least two replicas fewer of it, without losing a rack or a
        machine. Returns the partition, None if there is none."""
        return self._gain(self._pods, even=True)

    def _gain(self, groups: Groups, *, even: bool = False) -> TopicPartition | None:
        if len(set(groups.values())) == 1:
            return None
        gains = (gain for item in self.replicas.items() for gain in self._gains(groups, *item, even=even))
        best = min(gains, default=None)
        if best is None:
            return None
        *_, name, source, sink = best
        self._carry_out(name, source, sink)
        return name

    def _gains(
        self, groups: Groups, name: TopicPartition, replicas: Replicas, *, even: bool
    ) -> Iterator[tuple[int, int, TopicPartition, int, int]]:
        """Yield replicas that share a group with brokers of uncovered groups, fullest source and emptiest target
        first. `groups` are racks, machines or pods. `even`: the other group may have replicas, but two fewer."""
        used = Counter(groups[broker] for broker in replicas)
        if len(used) == len(replicas):
            return
        sources = [broker for broker in replicas if used[groups[broker]] > 1 and broker in self._held]
        sinks = [broker for broker in self._held if broker not in replicas and (even or groups[broker] not in used)]
        for source in sources:
            for sink in sinks:
                if used[groups[source]] - used[groups[sink]] < 2 or not self._keeps_above(
                    groups, replicas, source, sink
                ):
                    continue
                uneven = self._by_topic[name.topic, sink] - self._by_topic[name.topic, source]
                yield self._held[sink] - self._held[source], uneven, name, source, sink

    def _keeps_above(self, groups: Groups, replicas: Replicas, source: int, sink: int) -> bool:
        """Whether a partition loses none of what comes before these groups: racks, and before pods also machines."""
        above = (self._racks, self._machines) if groups is self._pods else (self._racks,)
        return all(_keeps(each, replicas, source, sink) for each in above)

    def move(self) -> TopicPartition | None:
        """Make one move. Returns its partition, None if no move is left."""
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
            if self._keeps_above(self._pods, self.replicas[name], source, sink)
            and _keeps_even(self._pods, self.replicas[name], source, sink)
        ]
        return min(
            fitting,
            key=lambda name: (self._by_topic[name.topic, sink] - self._by_topic[name.topic, source], name),
            default=None,
        )

    def _carry_out(self, name: TopicPartition, source: int, sink: int) -> None:
        self.replicas[name] = tuple(sink if broker == source else broker for broker in self.replicas[name])
        for broker, change in ((source, -1), (sink, 1)):
            self._held[broker] += change
            self._by_topic[name.topic, broker] += change
        self._by_broker[source].remove(name)
        self._by_broker[sink].add(name)


def _keeps(groups: Groups, replicas: Replicas, source: int, sink: int) -> bool:
    """Whether a partition covers as many groups after its replica has moved from `source` to `sink`."""
    others = {groups[broker] for broker in replicas if broker != source}
    return groups[sink] not in others or groups[source] in others


def _keeps_even(groups: Groups, replicas: Replicas, source: int, sink: int) -> bool:
    """Whether the replicas of a partition are spread as evenly over groups after one has moved to `sink`."""
    used = Counter(groups[broker] for broker in replicas)
    return groups[sink] == groups[source] or used[groups[sink]] < used[groups[source]]


def _leaders(
    partitions: Iterable[Partition],
    movable: Mapping[TopicPartition, Replicas],
    brokers: Iterable[int],
    *,
    limit: int,
) -> dict[TopicPartition, Replicas]:
    """Return reordered replica lists that balance preferred leaders, as far as chains exist."""
    preferred = Counter(one.target[0] for one in partitions if one.target)
    led = {broker: preferred[broker] for broker in sorted(brokers)}
    orders = dict(movable)
    targets: dict[TopicPartition, Replicas] = {}
    while len(targets) < limit:
        chain = _chain(led, orders)
        if not chain:
            break
        # Start at the end of the chain: if the portion is full, the rest is a shorter chain.
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
    """Return a chain of partitions with new preferred leaders, from a broker to one with at least two fewer."""
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
