"""Writes with the producer of Odradek: acks=all, idempotent, one record for each partition in each round.

Options: bootstrap, topic, partitions, rate, request_timeout_ms, ledger. Result: the ledger, and the summary of
`ledger.summary_of`.
"""

from __future__ import annotations

import asyncio
import signal
from functools import partial
from pathlib import Path
from typing import Any, Final

import uvloop

from odradek.client.models import RecordMetadata
from odradek.client.producer.producer import Producer
from odradek.client.settings import ClientSettings
from ordeal.clients.calling import answer, options
from ordeal.clients.ledger import Ledger, Pace, summary_of
from ordeal.records import value_of

DELIVERY_TIMEOUT_MS: Final = 600_000
"""Longer than any fault of a run, so no record may fail."""


def _settings(wanted: dict[str, Any]) -> ClientSettings:
    return ClientSettings.of(
        wanted["bootstrap"],
        request_timeout_ms=wanted["request_timeout_ms"],
        delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
        max_block_ms=DELIVERY_TIMEOUT_MS,
        client_id="load-odradek",
    )


def _settle(ledger: Ledger, partition: int, number: int, sent: asyncio.Future[RecordMetadata]) -> None:
    error = sent.exception()
    if error is None:
        ledger.note(partition, number, sent.result().offset)
    else:
        ledger.fail(partition, number, str(error))


async def main() -> None:
    """Write until SIGTERM, wait for the pending records, and write the result."""
    wanted = options()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    pace = Pace(wanted["rate"])
    with Ledger(Path(wanted["ledger"])) as ledger:
        async with Producer(_settings(wanted)) as producer:
            while not stop.is_set():
                await asyncio.sleep(pace.wait_s())
                number = pace.begin()
                for partition in wanted["partitions"]:
                    value = value_of(partition, number)
                    sent = await producer.send(wanted["topic"], value, partition=partition)
                    sent.add_done_callback(partial(_settle, ledger, partition, number))
                ledger.flush_if_due()
    answer(wanted, summary_of(ledger, pace, wanted["partitions"]))


if __name__ == "__main__":
    uvloop.run(main())
