"""Reads a topic from its beginning with librdkafka, without a group.

Options: bootstrap, topic, partitions, records, and for TLS the file of an authority. Figures: records and megabytes per
second, from the assignment to the last record.
"""

from __future__ import annotations

import time
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from comparison.clients.calling import answer, options

_AT_ONCE: Final = 10_000
_SILENCE_SECONDS: Final = 60.0
_QUEUE_BACKOFF_MS: Final = 10
"""By default, librdkafka waits a second when the queue of a partition is full. That pause would dominate the result."""


def _security(authority: str | None) -> dict[str, str]:
    """Return the properties for TLS, if there is the file of an authority."""
    if authority is None:
        return {}
    return {"security.protocol": "ssl", "ssl.ca.location": authority}


def main() -> None:
    """Read all records and return the figures."""
    wanted = options()
    consumer = Consumer(
        {
            "bootstrap.servers": wanted["bootstrap"],
            "group.id": "bench-librdkafka",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": _QUEUE_BACKOFF_MS,
            **_security(wanted["authority"]),
        }
    )
    began = time.perf_counter()
    consumer.assign([TopicPartition(wanted["topic"], n, OFFSET_BEGINNING) for n in range(wanted["partitions"])])
    records = size = 0
    while records < wanted["records"]:
        messages = consumer.consume(_AT_ONCE, _SILENCE_SECONDS)
        if not messages:
            raise RuntimeError(f"no record arrived within {_SILENCE_SECONDS:g} s after {records} records")
        for message in messages:
            if message.error() is not None:
                raise RuntimeError(str(message.error()))
            size += len(message)
        records += len(messages)
    seconds = time.perf_counter() - began
    consumer.close()
    answer({"records_per_s": records / seconds, "megabytes_per_s": size / seconds / (1 << 20)})


if __name__ == "__main__":
    main()
