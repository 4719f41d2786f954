"""Writing from Spark: the sink of this project's connector, and Spark's own one, to the same broker."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Final, Self

from comparison.clients import calling
from comparison.figures import OURS, Figures
from comparison.workloads.base import Bench, Workload, at_least, topic_of
from odradek_testkit.interop.apache import spark_connector_jars

START_SECONDS: Final = 180.0
"""Additional time for the start of Spark, which does not depend on the number of records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkWrite(Workload):
    """A Spark application with two cores appends rows to a new topic. Its start is not part of the rate."""

    records: int
    record_bytes: int
    partitions: int = 6

    def scaled(self, scale: float) -> Self:
        return replace(self, records=at_least(20_000, self.records * scale))

    def before(self, bench: Bench, number: int) -> None:
        os.sync()  # As for producers.
        bench.system.create_topic(topic_of(number), self.partitions)

    def run(self, bench: Bench, number: int) -> Figures:
        wanted = {
            "format": "odradek" if bench.side == OURS else "kafka",
            "topic": topic_of(number),
            "bootstrap": bench.system.bootstrap,
            "records": self.records,
            "record_bytes": self.record_bytes,
            "jars": ",".join(map(str, spark_connector_jars(bench.jars.parent))),
        }
        return calling.run("spark_sink", wanted, timeout=bench.timeout + START_SECONDS)

    def after(self, bench: Bench, number: int) -> None:
        bench.system.delete_topic(topic_of(number))
