"""The producer of the documents, over a synchronous and an asynchronous one.

    with ClassicProducer({"broker.list": "127.0.0.1:9092", "serializer.class": STRINGS}) as producer:
        producer.send(ProducerData("topic", "key", ["message"]))

With `producer.type=sync`, `send` returns when the brokers have acknowledged the messages. With `async`, it puts them
into a queue, and a thread sends batches: after `queue.time` milliseconds, or as soon as there are `batch.size`
messages. Threads use it.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Self

from odradek.base.errors import ConfigError, OdradekError
from odradek.classic.broker_discovery import BrokerDiscovery
from odradek.classic.producer_config import ProducerConfig
from odradek.classic.producer_plugins import (
    CallbackHandler,
    ClassicPartitioner,
    DefaultEncoder,
    Encoder,
    EventHandler,
    HashPartitioner,
    ProducerData,
    load_plugin,
)
from odradek.client.blocking.blocking_producer import BlockingProducer
from odradek.client.settings import ClientSettings

log = logging.getLogger(__name__)


class QueueFullError(OdradekError):
    """The queue of an asynchronous producer is full: `queue.size` messages wait."""


class ClassicProducer:
    """Sends messages, partitioned by key. `close` sends what is in the queue."""

    def __init__(
        self,
        config: ProducerConfig | Mapping[str, str],
        *,
        encoder: Encoder | None = None,
        partitioner: ClassicPartitioner | None = None,
        event_handler: EventHandler | None = None,
        callback_handler: CallbackHandler | None = None,
        client_settings: ClientSettings | None = None,
    ) -> None:
        """`config` can be properties. Objects replace the classes that `config` names. `client_settings` has the
        security settings for brokers.

        Raises `ConfigError` for an invalid setting, and `NetworkError` or `ZkError` if nobody answers.
        """
        parsed = config if isinstance(config, ProducerConfig) else ProducerConfig.parse(config)
        encoder = encoder or _plugin("serializer.class", parsed.serializer_class, DefaultEncoder)
        partitioner = partitioner or _plugin("partitioner.class", parsed.partitioner_class, HashPartitioner)
        self._sync: Final = SyncProducer(parsed, encoder, partitioner, client_settings or ClientSettings())
        self._async: AsyncProducer | None = None
        if parsed.producer_type == "async":
            handler = event_handler or _plugin("event.handler", parsed.event_handler, lambda: self._sync)
            callbacks = callback_handler or _plugin("callback.handler", parsed.callback_handler, CallbackHandler)
            self._async = AsyncProducer(parsed, handler, callbacks)
        elif event_handler or callback_handler or parsed.event_handler or parsed.callback_handler:
            self._sync.close()
            raise ConfigError("event.handler and callback.handler need producer.type=async")

    def __enter__(self) -> Self:
        """Return the producer."""
        return self

    def __exit__(self, *error: object) -> None:
        """Call `close`."""
        self.close()

    def send(self, data: ProducerData | Sequence[ProducerData]) -> None:
        """Send messages, or put them into the queue.

        A synchronous producer raises the first error of a message; others may have been sent. An asynchronous one
        raises `QueueFullError` after `queue.enqueueTimeout.ms`, and errors of the brokers are logged.
        """
        events = [data] if isinstance(data, ProducerData) else list(data)
        if self._async is None:
            self._sync.handle(events)
        else:
            for event in events:
                self._async.send(event)

    def close(self) -> None:
        """Send what is in the queue, then end. Idempotent."""
        if self._async is not None:
            self._async.close()
        self._sync.close()


class SyncProducer:
    """Serializes, partitions and sends messages, and waits for the acknowledgements. The default `EventHandler`."""

    def __init__(
        self, config: ProducerConfig, encoder: Encoder, partitioner: ClassicPartitioner, settings: ClientSettings
    ) -> None:
        """Connects to the brokers of `broker.list` or of ZooKeeper."""
        self._encoder: Final = encoder
        self._partitioner: Final = partitioner
        self._settings: Final = settings.replace(
            client_id=config.client_id or settings.client_id,
            acks="all" if config.acks == "-1" else config.acks,
            enable_idempotence=False,
            # Without idempotence, a repeated request would otherwise arrive behind later ones.
            max_in_flight_requests_per_connection=1,
            compression_type=config.compression_type,
            retries=config.num_retries,
            request_timeout_ms=config.socket_timeout_ms,
            max_request_size=config.max_message_size,
        )
        self._lock = threading.Lock()
        self._discovery = BrokerDiscovery(config.zk_connect, settings.security_protocol) if config.zk_connect else None
        self._addresses = self._discovery.addresses() if self._discovery is not None else config.addresses
        try:
            self._producer = BlockingProducer(self._settings.replace(bootstrap_servers=self._addresses))
        except BaseException:
            if self._discovery is not None:
                self._discovery.close()
            raise
        self._closed = False

    def handle(self, events: Sequence[ProducerData]) -> None:
        """Send messages. Raises the first error."""
        with self._lock:
            self._follow_brokers()
            sent = [
                self._producer.send(
                    event.topic,
                    self._encoder.to_message(message),
                    key=None if event.key is None else self._encoded_key(event.key),
                    partition=self._partition(event),
                )
                for event in events
                for message in event.data
            ]
        for each in sent:
            each.result()

    def _encoded_key(self, key: Any) -> bytes | None:
        return key if isinstance(key, bytes) else self._encoder.to_message(key)

    def _partition(self, event: ProducerData) -> int:
        partitions = self._producer.partitions_for(event.topic)
        index = self._partitioner.partition(event.key, len(partitions))
        if not 0 <= index < len(partitions):
            raise ConfigError(f"the partitioner returned {index} for {len(partitions)} partitions of {event.topic}")
        return partitions[index]

    def _follow_brokers(self) -> None:
        """Connect again if none of the brokers is registered any more to which this producer has connected first."""
        if self._discovery is None:
            return
        addresses = self._discovery.addresses()
        if addresses and not set(addresses) & set(self._addresses):
            self._producer.close()
            self._addresses = addresses
            self._producer = BlockingProducer(self._settings.replace(bootstrap_servers=addresses))

    def close(self) -> None:
        """Close the connections. Idempotent."""
        if not self._closed:
            self._closed = True
            self._producer.close()
            if self._discovery is not None:
                self._discovery.close()


class AsyncProducer:
    """A queue, and a thread that hands batches from it to the event handler."""

    def __init__(self, config: ProducerConfig, handler: EventHandler, callbacks: CallbackHandler) -> None:
        """`handler` is closed with the producer, unless it is the synchronous producer's."""
        self._config: Final = config
        self._handler: Final = handler
        self._callbacks: Final = callbacks
        self._queue: Final[queue.Queue[ProducerData | None]] = queue.Queue(config.queue_size)
        self._closed = False
        self._thread: Final = threading.Thread(target=self._run, name="ProducerSendThread", daemon=True)
        self._thread.start()

    def send(self, data: ProducerData) -> None:
        """Put messages into the queue. Raises `QueueFullError`."""
        if self._closed:
            raise ConfigError("the producer is closed")
        data = self._callbacks.before_enqueue(data)
        wait_ms = self._config.queue_enqueuetimeout_ms
        try:
            self._queue.put(data, block=wait_ms != 0, timeout=None if wait_ms < 0 else wait_ms / 1000)
        except queue.Full:
            self._callbacks.after_enqueue(data, False)
            raise QueueFullError(
                f"queue.size={self._config.queue_size} messages wait: send fewer, or raise queue.enqueueTimeout.ms"
            ) from None
        self._callbacks.after_enqueue(data, True)

    def close(self) -> None:
        """Send what is in the queue, then end the thread. Idempotent."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            batch, is_last = self._next_batch()
            if is_last:
                batch += self._added(self._callbacks.last_batch_before_close)
            if batch:
                self._handle(batch)
        if not isinstance(self._handler, SyncProducer):
            self._handler.close()

    def _next_batch(self) -> tuple[list[ProducerData], bool]:
        """Return the next batch, and whether it is the last one."""
        batch: list[ProducerData] = []
        deadline = time.monotonic() + self._config.queue_time / 1000
        while len(batch) < self._config.batch_size:
            try:
                data = self._queue.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return [*batch, *self._added(lambda: self._callbacks.after_dequeuing_existing_data(None))], False
            if data is None:
                return batch, True
            batch += self._added(partial(self._callbacks.after_dequeuing_existing_data, data))
        return batch, False

    @staticmethod
    def _added(callback: Callable[[], Sequence[ProducerData]]) -> Sequence[ProducerData]:
        try:
            return callback()
        except Exception:
            # A bug in a callback handler must not end the thread.
            log.exception("a callback handler failed, and the messages that it was to return are not sent")
            return ()

    def _handle(self, batch: Sequence[ProducerData]) -> None:
        try:
            self._handler.handle(self._callbacks.before_sending_data(batch))
        except OdradekError as error:
            log.error("%d messages of an asynchronous producer were not all sent: %s", len(batch), error)
        except Exception:
            # A bug in an encoder, a partitioner or a handler must not end the thread.
            log.exception("%d messages of an asynchronous producer were not all sent", len(batch))


def _plugin(setting: str, name: str, default: Callable[[], Any]) -> Any:
    return load_plugin(setting, name) if name else default()
