"""Measures the CPU of the load client of `busy-200` per request, and its limit.

Run by hand: `python broker/tests/bench/load_client.py`. Another process answers every request with a fixed response, so
no broker limits the client. It answers all requests that it receives together with one `send`, as Odradek does, or
each with its own, as Apache Kafka does; the client then receives fewer responses at a time.
"""

from __future__ import annotations

import multiprocessing
import select
import socket
import sys
import time
from contextlib import ExitStack
from typing import Final

from comparison.batches import batch, filler
from comparison.clients.closed_loop import ClosedLoop, Cycle, LoadConnection, ResponseLayout
from comparison.figures import latency_figures

from odradek.base.types import TopicPartition
from odradek.protocol.hotpath import ProducedPartition, encode_produce_response

TOPIC: Final = "run-0"
CONNECTIONS: Final = 200
WINDOW: Final = 5
REQUESTS: Final = 1_000_000
_RECEIVED: Final = 1 << 16


def responses(cycle: Cycle) -> memoryview:
    """Return the responses to one cycle of requests, and the first ones again."""
    rows = [ProducedPartition(partition, 0, 0) for partition in cycle.partitions]
    encoded = [bytes(encode_produce_response(7, number, [row])) for number, row in enumerate(rows)]
    return memoryview(b"".join(encoded + encoded[: cycle.window]))


def respond(listener: socket.socket, cycle: Cycle, *, together: bool) -> None:
    """Answer the requests of all connections until they are closed."""
    answers = responses(cycle)
    size = len(answers) // (cycle.length + cycle.window)
    received: dict[int, int] = {}
    answered: dict[int, int] = {}
    sockets: dict[int, socket.socket] = {}
    buffer = bytearray(_RECEIVED)
    with select.epoll() as epoll:
        for _ in range(CONNECTIONS):
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sockets[connection.fileno()] = connection
            received[connection.fileno()] = answered[connection.fileno()] = 0
            epoll.register(connection, select.EPOLLIN)
        while sockets:
            for fileno, _ in epoll.poll():
                count = sockets[fileno].recv_into(buffer)
                if not count:
                    sockets.pop(fileno).close()
                    continue
                received[fileno] += count
                whole = received[fileno] // cycle.frame_bytes
                step = whole - answered[fileno] if together else 1
                while answered[fileno] < whole:
                    start = answered[fileno] % cycle.length
                    sockets[fileno].sendall(answers[start * size : (start + step) * size])
                    answered[fileno] += step


def measure(*, together: bool) -> None:
    """Print the figures of one run."""
    cycle = Cycle(
        [TopicPartition(TOPIC, 0)], batch(filler(100), 1, timestamp_ms=int(time.time() * 1000)), window=WINDOW
    )
    layout = ResponseLayout(TOPIC, len(responses(cycle)) // (cycle.length + cycle.window))
    with ExitStack() as closing:
        listener = closing.enter_context(socket.create_server(("127.0.0.1", 0), backlog=CONNECTIONS))
        process = multiprocessing.get_context("fork").Process(
            target=respond, args=(listener, cycle), kwargs={"together": together}, daemon=True
        )
        process.start()
        connections = []
        for number in range(CONNECTIONS):
            connection = closing.enter_context(socket.create_connection(listener.getsockname()))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connections.append(
                LoadConnection(f"connection {number}", connection, cycle, layout, REQUESTS // CONNECTIONS)
            )
        loop = ClosedLoop(connections)
        cpu = time.process_time()
        seconds = loop.run()
        cpu = time.process_time() - cpu
    process.join()
    milliseconds = loop.milliseconds()
    latencies = " ".join(f"{name} {value:.2f}" for name, value in latency_figures(milliseconds.tolist()).items())
    sys.stdout.write(
        f"{'responses together' if together else 'responses one by one':22s} {len(milliseconds) / seconds:9,.0f} "
        f"requests/s {cpu / len(milliseconds) * 1e6:6.2f} us of client CPU per request; {latencies}\n"
    )


if __name__ == "__main__":
    for each in (True, False):
        measure(together=each)
