"""Transactional producers of librdkafka, one per thread.

Options: bootstrap, topic, partitions, number of producers, transactions of each, records of a transaction, record size.
Figures: committed records and transactions per second, and the latency of the commit, from the call of
`commit_transaction`, which also sends what is waiting, to its return.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from confluent_kafka import Producer

from comparison.clients.calling import answer, options
from comparison.figures import latency_figures
from comparison.processes import MEGABYTE

_SECONDS: Final = 60.0


def commit_all(number: int, wanted: Mapping[str, Any]) -> list[float]:
    """Commit the transactions of one producer, and return the milliseconds that each commit took."""
    producer = Producer(
        {"bootstrap.servers": wanted["bootstrap"], "transactional.id": f"{wanted['topic']}-{number}", "linger.ms": 0}
    )
    producer.init_transactions(_SECONDS)
    value = b"x" * wanted["record_bytes"]
    milliseconds = []
    for _ in range(wanted["transactions"]):
        producer.begin_transaction()
        for position in range(wanted["records"]):
            producer.produce(wanted["topic"], value, partition=position % wanted["partitions"])
        began = time.perf_counter()
        producer.commit_transaction(_SECONDS)
        milliseconds.append((time.perf_counter() - began) * 1e3)
    return milliseconds


def main() -> None:
    """Run all producers at the same time, and return the figures."""
    wanted = options()
    began = time.perf_counter()
    with ThreadPoolExecutor(wanted["producers"]) as pool:
        commits_ms = [
            each
            for milliseconds in pool.map(lambda number: commit_all(number, wanted), range(wanted["producers"]))
            for each in milliseconds
        ]
    seconds = time.perf_counter() - began
    records = len(commits_ms) * wanted["records"]
    answer(
        {
            "records": records,
            "megabytes": records * wanted["record_bytes"] / MEGABYTE,
            "records_per_s": records / seconds,
            "transactions_per_s": len(commits_ms) / seconds,
            **latency_figures(commits_ms),
        }
    )


if __name__ == "__main__":
    main()
