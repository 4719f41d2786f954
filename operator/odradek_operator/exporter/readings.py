"""The latest values from the brokers with their times, kept between collections.

`collection` and `service` update it; `snapshot` returns an `ExporterSnapshot` of the values that have not expired.
Times are in seconds of a monotonic clock. Invariant: a broker that does not answer does not affect values from others.
Its own values expire. Values of a deleted topic or group disappear with the first answer that no longer lists it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from odradek.base.types import TopicPartition
from odradek.client.metadata import ClusterView, TopicView
from odradek_operator.exporter.exporter_settings import ExporterSettings
from odradek_operator.exporter.lag import OffsetHistory
from odradek_operator.exporter.snapshot import (
    NOTHING_COMMITTED,
    Broker,
    ExporterSnapshot,
    GroupReading,
    PartitionReading,
    Position,
    TopicReading,
)

K = TypeVar("K")
V = TypeVar("V")
Commits = Mapping[TopicPartition, int]


class ExpiringValues(Generic[K, V]):
    """The last value of each key, with its time."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        """Create a container without values."""
        self._values: dict[K, tuple[V, float]] = {}

    def __len__(self) -> int:
        """Return the number of values, including expired ones that were not dropped yet."""
        return len(self._values)

    def put(self, values: Mapping[K, V], time: float) -> None:
        """Set the values of several keys. `time`: the current time."""
        for key, value in values.items():
            self._values[key] = (value, time)

    def get(self, key: K, since: float) -> V | None:
        """Return the value, unless it is older than `since`."""
        found = self._values.get(key)
        return found[0] if found is not None and found[1] >= since else None

    def since(self, since: float) -> dict[K, V]:
        """Return all values that are not older than `since`."""
        return {key: value for key, (value, time) in self._values.items() if time >= since}

    def forget(self, since: float) -> None:
        """Drop the values that are older than `since`."""
        self._values = {key: entry for key, entry in self._values.items() if entry[1] >= since}


class Members(NamedTuple):
    """The number of members of a group, and the partitions assigned to them."""

    size: int
    assigned: frozenset[TopicPartition] = frozenset()


class Readings:
    """All values of the cluster that have not expired."""

    def __init__(self, settings: ExporterSettings) -> None:
        """Create a container without values."""
        self._settings: Final = settings
        self._view: tuple[ClusterView, float] | None = None
        self.ends: Final[ExpiringValues[TopicPartition, int]] = ExpiringValues()
        self.starts: Final[ExpiringValues[TopicPartition, int]] = ExpiringValues()
        self.sizes: Final[ExpiringValues[TopicPartition, int]] = ExpiringValues()
        self.listed: Final[ExpiringValues[int, frozenset[str]]] = ExpiringValues()
        """The groups that each broker coordinates."""
        self.members: Final[ExpiringValues[str, Members]] = ExpiringValues()
        self.commits: Final[ExpiringValues[str, Commits]] = ExpiringValues()
        self.zookeeper_commits: Final[ExpiringValues[str, Commits]] = ExpiringValues()
        self._histories: dict[TopicPartition, OffsetHistory] = {}

    def set_cluster(self, view: ClusterView, time: float) -> None:
        """Set the brokers and topics of the cluster."""
        self._view = view, time

    def set_ends(self, ends: Mapping[TopicPartition, int], time: float) -> None:
        """Set the log end offsets of partitions."""
        self.ends.put(ends, time)
        for partition, offset in ends.items():
            history = self._histories.get(partition)
            if history is None:
                history = self._histories[partition] = OffsetHistory()
            history.note(offset, time)

    def set_zookeeper_commits(self, commits: Mapping[str, Commits], time: float) -> None:
        """Set the commits of all groups in ZooKeeper. Groups that are not in `commits` no longer exist."""
        self.zookeeper_commits.forget(time)
        self.zookeeper_commits.put(commits, time)

    def seed(self, samples: Mapping[TopicPartition, Iterable[tuple[int, float]]]) -> None:
        """Add samples of log end offsets before the first sample of each partition."""
        for partition, known in samples.items():
            history = self._histories.get(partition)
            if history is not None:
                history.seed(known)

    def to_seed(self, now: float) -> frozenset[TopicPartition]:
        """Return the partitions that need samples of earlier times, which were not queried yet.

        The commit of a group in such a partition is older than all samples.
        """
        wanted = set()
        for commits in self._live_commits(now).values():
            for partition, offset in commits.items():
                history = self._histories.get(partition)
                if history is not None and not history.is_seeded and not history.reaches(offset):
                    wanted.add(partition)
        return frozenset(wanted)

    def forget(self, now: float) -> None:
        """Drop expired values, and the samples of partitions without a current end."""
        since, sizes_since = now - self._settings.stale_after, now - self._settings.sizes_stale_after
        for kept in (self.ends, self.starts, self.listed, self.members, self.commits):
            kept.forget(since)
        self.sizes.forget(sizes_since)
        self.zookeeper_commits.forget(sizes_since)
        known = self.ends.since(since)
        self._histories = {partition: seen for partition, seen in self._histories.items() if partition in known}

    def snapshot(self, now: float) -> ExporterSnapshot:
        """Return the values that have not expired."""
        if self._view is None or self._view[1] < now - self._settings.stale_after:
            return ExporterSnapshot()
        view = self._view[0]
        topics = tuple(
            self._topic(topic, now)
            for name, topic in sorted(view.topics.items())
            if topic.partitions and self._settings.topics.takes(name)
        )
        there = {TopicPartition(topic.name, partition.number) for topic in topics for partition in topic.partitions}
        return ExporterSnapshot(
            brokers=tuple(
                Broker(node.node_id, _address(node.host, node.port)) for _, node in sorted(view.nodes.items())
            ),
            topics=topics,
            groups=self._groups(there, now),
            zookeeper_groups=tuple(
                GroupReading(name=name, members=None, positions=self._positions(commits, frozenset(), there, now))
                for name, commits in sorted(
                    self.zookeeper_commits.since(now - self._settings.sizes_stale_after).items()
                )
            ),
        )

    def _topic(self, topic: TopicView, now: float) -> TopicReading:
        since, sizes_since = now - self._settings.stale_after, now - self._settings.sizes_stale_after
        partitions = []
        for number, seen in sorted(topic.partitions.items()):
            key = TopicPartition(topic.name, number)
            start, end = self.starts.get(key, since), self.ends.get(key, since)
            size = self.sizes.get(key, sizes_since)
            partitions.append(PartitionReading(number, seen.leader, seen.replicas, len(seen.isr), start, end, size))
        return TopicReading(name=topic.name, partitions=tuple(partitions))

    def _live_commits(self, now: float) -> dict[str, Commits]:
        """Return the commits of the groups that a broker still lists."""
        since = now - self._settings.stale_after
        live = set[str]().union(*self.listed.since(since).values())
        return {group: commits for group, commits in self.commits.since(since).items() if group in live}

    def _groups(self, there: set[TopicPartition], now: float) -> tuple[GroupReading, ...]:
        since = now - self._settings.stale_after
        commits, nobody = self._live_commits(now), Members(0)
        live = set[str]().union(*self.listed.since(since).values())
        groups = []
        for name in sorted(live):
            members = self.members.get(name, since)
            assigned = (members or nobody).assigned
            groups.append(
                GroupReading(
                    name=name,
                    members=None if members is None else members.size,
                    positions=self._positions(commits.get(name, {}), assigned, there, now),
                )
            )
        return tuple(groups)

    def _positions(
        self, commits: Commits, assigned: frozenset[TopicPartition], there: set[TopicPartition], now: float
    ) -> tuple[Position, ...]:
        positions = []
        for partition in sorted(commits.keys() | assigned):
            if partition in there:
                committed = commits.get(partition, NOTHING_COMMITTED)
                lag, seconds = self._lag(partition, committed, now)
                positions.append(Position(*partition, committed, lag, seconds))
        return tuple(positions)

    def _lag(self, partition: TopicPartition, committed: int, now: float) -> tuple[int | None, float | None]:
        end = self.ends.get(partition, now - self._settings.stale_after)
        if end is None or committed < 0:
            return None, None
        # The commit may be newer than the end, because they come from different requests.
        lag = max(0, end - committed)
        if lag == 0:
            return 0, 0.0
        history = self._histories.get(partition)
        seconds = None if history is None else history.seconds_behind(committed, now)
        return lag, None if seconds is None else min(seconds, self._settings.lag_cap)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
