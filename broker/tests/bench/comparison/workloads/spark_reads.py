"""Reading with Spark: our connector and Spark's own, from the same kind of broker."""

from __future__ import annotations

import random
import string
import time
from dataclasses import dataclass, replace
from typing import Final, Self

from comparison import loading
from comparison.clients import calling
from comparison.figures import OURS, Figures
from comparison.workloads.base import Bench, Workload, at_least
from odradek.compression import Codec
from odradek.records.v2.batch import BatchBuilder, Headers
from odradek_testkit.interop.apache import spark_connector_jars

TOPIC: Final = "read"
FORMATS: Final = {True: "odradek", False: "kafka"}
"""The formats of our connector and of Spark's own."""
_HEADERS: Final[Headers] = (("trace", b"0123456789abcdef"), ("kind", b"order"))


def connector_options(bench: Bench, topic: str) -> dict[str, str]:
    """Return the options of a Spark client: the connector of this side, and where it connects to."""
    return {
        "jars": ",".join(map(str, spark_connector_jars(bench.jars.parent))),
        "format": FORMATS[bench.side == OURS],
        "bootstrap": bench.system.client_bootstrap,
        "topic": topic,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkRead(Workload):
    """A Spark application reads a topic of 6 partitions."""

    records: int
    record_bytes: int
    batch_records: int
    mode: str = "noop"
    """The mode of the client, see `clients/spark_read`."""
    metric: str = "rows_per_s"
    """The name of the figure, which has the goal of the scenario."""
    codec: Codec = Codec.NONE
    partitions: int = 6

    def scaled(self, scale: float) -> Self:
        return replace(self, records=at_least(12_000, self.records * scale))

    @property
    def batches(self) -> int:
        """The number of batches, the same in each partition."""
        return -(-self.records // (self.batch_records * self.partitions)) * self.partitions

    def prepare(self, bench: Bench) -> None:
        bench.system.create_topic(TOPIC, self.partitions)
        content = batch_of(
            self.record_bytes,
            self.batch_records,
            codec=self.codec,
            headers=_HEADERS if self.mode == "headers" else (),
        )
        loading.fill_repeating(bench.system.first, TOPIC, self.partitions, batches=self.batches, content=content)

    def run(self, bench: Bench, number: int) -> Figures:
        wanted = {
            **connector_options(bench, TOPIC),
            "mode": self.mode,
            "records": self.batches * self.batch_records,
        }
        found = calling.run("spark_read", wanted, timeout=bench.timeout)
        if "rows_per_s" in found:
            found[self.metric] = found.pop("rows_per_s")
        return found


def batch_of(record_bytes: int, count: int, *, codec: Codec = Codec.NONE, headers: Headers = ()) -> bytes:
    """Return a batch of records with keys of 8 bytes and values of random letters, which are the same in every run."""
    # Older records would be deleted by retention.
    now_ms = int(time.time() * 1000)
    chance = random.Random(5)
    letters = string.ascii_letters + string.digits
    builder = BatchBuilder(codec=codec, limit_bytes=1 << 30)
    for number in range(count):
        value = "".join(chance.choices(letters, k=record_bytes)).encode()
        builder.append(b"%08d" % number, value, timestamp_ms=now_ms + number, headers=headers)
    return builder.build()
