"""A query moves from Spark's own source for Kafka to ours and back, with its checkpoint."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from parity_data import NATIVE, OURS, Queries, create, send
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from odradek.client.blocking.client import BlockingClient

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(900)]
_numbers = itertools.count()


@pytest.mark.parametrize("fails", [False, True], ids=["committed", "not committed"])
@pytest.mark.parametrize("first", [NATIVE, OURS])
def test_a_checkpoint_is_taken_over(
    spark: SparkSession, bootstrap: str, client: BlockingClient, tmp_path: Path, first: str, fails: bool
) -> None:
    topic = f"moved-{next(_numbers)}"
    create(client, topic, 2)
    send(client, topic, 0, 40)
    send(client, topic, 1, 20)
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "24"}
    second = OURS if first == NATIVE else NATIVE
    rows = []
    for number, source in enumerate((first, second, first)):
        queries = Queries(spark, source, bootstrap)
        if number == 0 and fails:
            # The micro-batch 1 is in the checkpoint, but not committed: the other source has to read exactly it.
            with pytest.raises(PySparkException, match="the query fails here"):
                queries.stream(options, tmp_path, fail_at=1)
            rows += [(0, offset) for offset in range(16)] + [(1, offset) for offset in range(8)]
        else:
            rows += [(row.partition, row.offset) for row in queries.stream(options, tmp_path).rows]
        if number:
            idle = queries.stream(options, tmp_path)
            assert idle.rows == []
        send(client, topic, 1, 5)
    assert sorted(rows) == [(0, offset) for offset in range(40)] + [(1, offset) for offset in range(30)]


def test_the_first_micro_batch_of_ours_is_taken_over(
    spark: SparkSession, bootstrap: str, client: BlockingClient, tmp_path: Path
) -> None:
    """Its end carries the start of the query, which Spark's own source ignores."""
    topic = f"moved-{next(_numbers)}"
    create(client, topic, 1)
    send(client, topic, 0, 10)
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    assert len(Queries(spark, OURS, bootstrap).stream(options, tmp_path).rows) == 10
    assert '"odradek start: ' in (tmp_path / "offsets" / "0").read_text().replace('\\"', '"')
    send(client, topic, 0, 3)
    assert [row.offset for row in Queries(spark, NATIVE, bootstrap).stream(options, tmp_path).rows] == [10, 11, 12]
