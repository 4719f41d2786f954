"""Copying a topic to another cluster: `odradek mirror` and MirrorMaker 2, between the same kind of clusters."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from comparison import loading
from comparison.batches import batch, filler
from comparison.figures import Figures
from comparison.processes import MEGABYTE, Meter
from comparison.systems import running
from comparison.waiting import wait_until
from comparison.wire import Address, Connection
from comparison.workloads.base import Bench, Workload, at_least, topic_of
from comparison.workloads.mirror_programs import Route, mirror_process
from odradek.base.errors import LeaderNotAvailableError, NotLeaderOrFollowerError, UnknownTopicOrPartitionError
from odradek.base.types import LATEST_TIMESTAMP, MAX_TIMESTAMP
from odradek.protocol.apis import ApiKey
from odradek_operator.embedded.child import ChildProcess

TOPIC: Final = "full"
TARGET_PROPERTIES: Final = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
_LIST_OFFSETS_VERSION: Final = 7
_READ_COMMITTED: Final = 1
_PROBE_SECONDS: Final = 0.02
_NOT_YET: Final = {
    each.code for each in (UnknownTopicOrPartitionError, LeaderNotAvailableError, NotLeaderOrFollowerError)
}
"""The errors of a topic before it is created, and while it is."""
_LEAD_MS: Final = 50 * 60_000
"""How far the timestamp of the last record of each partition is in the future. It is newer than those of the
transaction markers in the copy, and less than `message.timestamp.after.max.ms`, an hour, in the future."""
_STOP_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror(Workload):
    """A mirror copies a topic from its beginning.

    The first records warm the mirror up, and are not measured. The measured time begins when they are in the copy, and
    ends when all records are, each time for consumers with `read_committed`.
    """

    records: int
    record_bytes: int
    batch_records: int
    """Records of each batch of the source."""
    warm_up_share: float = 0.5
    """Which part of the records warms up."""
    exactly_once: bool = False
    """Whether MirrorMaker 2 copies each record exactly once."""
    partitions: int = 6

    def scaled(self, scale: float) -> Self:
        return replace(self, records=at_least(50_000, self.records * scale))

    @property
    def _batches(self) -> int:
        """Number of batches, the same in each partition. One record follows them."""
        return self.partitions * -(-self.records // (self.batch_records * self.partitions))

    def prepare(self, bench: Bench) -> None:
        target = running(bench.system.name, 1, TARGET_PROPERTIES, jars=bench.jars)
        bench.others.append(bench.until_end.enter_context(target))
        source = bench.system
        source.create_topic(TOPIC, self.partitions)
        now_ms = int(time.time() * 1000)
        value = filler(self.record_bytes)
        many = batch(value, self.batch_records, timestamp_ms=now_ms)
        last = batch(value, 1, timestamp_ms=now_ms + _LEAD_MS)
        for batches, content in ((self._batches, many), (self.partitions, last)):
            loading.fill_repeating(source.first, TOPIC, self.partitions, batches=batches, content=content)

    def before(self, bench: Bench, number: int) -> None:
        os.sync()  # As for producers.

    def run(self, bench: Bench, number: int) -> Figures:
        (target,) = bench.others
        route = _route(bench, number)
        total = self._batches * self.batch_records + self.partitions
        warm_up = int(total * self.warm_up_share)
        with (
            tempfile.TemporaryDirectory(prefix="bench-mirror-") as folder,
            _Ends(bench.system.first, TOPIC, self.partitions) as original,
            _Ends(target.first, route.copy, self.partitions) as copy,
        ):
            newest_ms = original.newest_ms()
            program = mirror_process(
                bench.side, route, Path(folder) / "mirror", jars=bench.jars, exactly_once=self.exactly_once
            )
            program.start()
            try:
                _wait(program, lambda: copy.count() >= warm_up, f"the copy of {warm_up} records", bench.timeout)
                began, before = time.perf_counter(), copy.count()
                with Meter(lambda: [program.pid] if program.pid is not None else []) as meter:
                    _wait(program, lambda: copy.has(newest_ms), f"the copy of {total} records", bench.timeout)
                seconds = time.perf_counter() - began
                found = copy.count()
            finally:
                program.stop(_STOP_SECONDS)
        if found < total:
            raise RuntimeError(f"the copy has {found} of {total} records")
        # Markers of transactions have offsets too. They are fewer than one for each thousand records.
        records, usage = total - before, meter.figures()
        return {
            "mirrored_per_s": records / seconds,
            "mirrored_mb_per_s": records * self.record_bytes / seconds / MEGABYTE,
            "mirror_us": usage["cpu_s"] / records * 1e6,
            "mirror_mb": usage["rss_max_mb"],
        }

    def after(self, bench: Bench, number: int) -> None:
        (target,) = bench.others
        target.delete_topic(_route(bench, number).copy)


def _route(bench: Bench, number: int) -> Route:
    (target,) = bench.others
    return Route(alias=topic_of(number), source=bench.system.bootstrap, target=target.bootstrap, topic=TOPIC)


def _wait(program: ChildProcess, reached: Callable[[], bool], what: str, timeout_seconds: float) -> None:
    """Wait until the copy has reached something, or the mirror has ended: then raise `RuntimeError`."""

    def look() -> bool:
        if not program.running:
            raise RuntimeError(f"{program.name} {program.how_it_ended()}")
        return reached()

    wait_until(look, what, timeout_seconds=timeout_seconds, every_seconds=_PROBE_SECONDS)


class _Ends:
    """Asks a broker for the offsets of a topic that consumers with `read_committed` can read."""

    def __init__(self, address: Address, topic: str, partitions: int) -> None:
        self._topic = topic
        self._partitions = partitions
        self._connection = Connection(address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()

    def count(self) -> int:
        """Return the number of readable offsets; 0 before the topic exists."""
        return sum(offset for offset, _ in self._ask(LATEST_TIMESTAMP))

    def newest_ms(self) -> int:
        """Return the newest timestamp."""
        return max(timestamp for _, timestamp in self._ask(MAX_TIMESTAMP))

    def has(self, timestamp_ms: int) -> bool:
        """Whether each partition has a readable record with this or a newer timestamp."""
        found = self._ask(timestamp_ms)
        return bool(found) and all(offset >= 0 for offset, _ in found)

    def _ask(self, timestamp_ms: int) -> list[tuple[int, int]]:
        """Return offset and timestamp for each partition; nothing before the topic exists."""
        rows = [{"partition_index": number, "timestamp": timestamp_ms} for number in range(self._partitions)]
        message = {
            "replica_id": -1,
            "isolation_level": _READ_COMMITTED,
            "topics": [{"name": self._topic, "partitions": rows}],
        }
        answer = self._connection.ask(ApiKey.LIST_OFFSETS, _LIST_OFFSETS_VERSION, message)
        (topic,) = answer.topics
        codes = {row.error_code for row in topic.partitions} - {0}
        if codes & _NOT_YET:
            return []
        if codes:
            raise RuntimeError(f"the offsets of {self._topic} were answered with the errors {sorted(codes)}")
        return [(row.offset, row.timestamp) for row in topic.partitions]
