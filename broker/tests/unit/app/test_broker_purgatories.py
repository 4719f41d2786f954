"""The purgatories of a whole broker follow Kafka's settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from odradek.testing.in_process import InProcessBroker

SETTINGS = {
    "producer.purgatory.purge.interval.requests": 11,
    "fetch.purgatory.purge.interval.requests": 12,
    "delete.records.purgatory.purge.interval.requests": 13,
}


@pytest.mark.parametrize(("config", "intervals"), [({}, (1000, 1000, 1)), (SETTINGS, (11, 12, 13))])
def test_the_intervals_of_purges_are_those_of_the_settings(
    tmp_path: Path, config: Mapping[str, object], intervals: tuple[int, int, int]
) -> None:
    broker = InProcessBroker(tmp_path, config)
    broker.start()
    try:
        assert broker._broker is not None
        replicas = broker._broker._replicas
        found = (replicas.produce_purgatory, replicas.fetch_purgatory, replicas.deletion.purgatory)
        assert tuple(purgatory.purge_interval for purgatory in found) == intervals
    finally:
        broker.close()
