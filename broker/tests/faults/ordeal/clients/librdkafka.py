"""Writes with librdkafka: acks=all, idempotent, one record for each partition in each round.

Options and result are those of `ours`. Where the defaults of librdkafka differ from those of Kafka's clients, the
settings are Kafka's: the pause before a reconnect grows to one second instead of ten.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer

from ordeal.clients.calling import answer, options, told_to_stop
from ordeal.clients.ledger import Ledger, Pace, summary_of
from ordeal.records import value_of

DELIVERY_TIMEOUT_MS: Final = 600_000
_MOST_WAITING: Final = 1_000_000


def _producer(wanted: dict[str, Any]) -> Producer:
    return Producer(
        {
            "bootstrap.servers": wanted["bootstrap"],
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 0,
            "request.timeout.ms": wanted["request_timeout_ms"],
            "socket.timeout.ms": wanted["request_timeout_ms"],
            "message.timeout.ms": DELIVERY_TIMEOUT_MS,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1_000,
            "queue.buffering.max.messages": _MOST_WAITING,
            "client.id": "load-librdkafka",
        }
    )


def _settle(ledger: Ledger, partition: int, number: int, error: KafkaError | None, message: Message) -> None:
    if error is None:
        offset = message.offset()
        ledger.note(partition, number, -1 if offset is None else max(offset, -1))
    else:
        ledger.fail(partition, number, str(error))


class Load:
    """Writes rounds of records until `stop`."""

    def __init__(self, wanted: dict[str, Any], ledger: Ledger) -> None:
        self._wanted = wanted
        self._ledger = ledger
        self._producer = _producer(wanted)
        self._stopped = False
        self.pace = Pace(wanted["rate"])

    def stop(self) -> None:
        """Stop after the current round."""
        self._stopped = True

    def run(self) -> None:
        """Write until `stop` is called, then wait for the pending records."""
        while not self._stopped:
            while (wait := self.pace.wait_s()) > 0:
                self._producer.poll(wait)
            number = self.pace.begin()
            for partition in self._wanted["partitions"]:
                settle = partial(_settle, self._ledger, partition, number)
                self._producer.produce(
                    self._wanted["topic"], value_of(partition, number), partition=partition, on_delivery=settle
                )
            self._ledger.flush_if_due()
        self._producer.flush(DELIVERY_TIMEOUT_MS / 1000)


def main() -> None:
    """Write until SIGTERM, then write the result."""
    wanted = options()
    with Ledger(Path(wanted["ledger"])) as ledger:
        load = Load(wanted, ledger)
        told_to_stop(load.stop)
        load.run()
    answer(wanted, summary_of(ledger, load.pace, wanted["partitions"]))


if __name__ == "__main__":
    main()
