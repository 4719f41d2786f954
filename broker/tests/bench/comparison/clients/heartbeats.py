"""Heartbeats of many members at a fixed rate: each member sends one in every interval.

Options: address of the broker, file of `many_groups`, number of connections, interval and duration in seconds. Figures:
heartbeats per second, and their latency. The heartbeats of each hundredth of a second are sent at once, each over
another connection.
"""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from itertools import cycle, islice
from pathlib import Path
from typing import Final

from comparison.clients.busy import opened
from comparison.clients.calling import answer, options
from comparison.clients.group_members import GroupError, Member, heartbeat_code
from comparison.figures import latency_figures
from comparison.waiting import pause
from comparison.wire import Address, Connection

TICK_SECONDS: Final = 0.01


def beat(frames: list[tuple[Connection, bytes]], milliseconds: list[float]) -> None:
    """Send heartbeats, one over each connection, and wait for all responses."""
    began = time.perf_counter()
    for connection, frame in frames:
        connection.send(frame)
    for connection, _ in frames:
        code = heartbeat_code(connection.receive())
        if code:
            raise GroupError(f"a heartbeat got the error {code}")
        milliseconds.append((time.perf_counter() - began) * 1e3)


def main() -> None:
    """Send heartbeats for the duration, and return the figures."""
    wanted = options()
    address = Address(wanted["host"], wanted["port"])
    milliseconds: list[float] = []
    with ExitStack() as closing:
        connections = [closing.enter_context(opened(address)) for _ in range(wanted["connections"])]
        rows = json.loads(Path(wanted["file"]).read_text(encoding="utf-8"))
        frames = [
            (connection, Member(group, connection, member_id, generation).heartbeat_frame())
            for (group, member_id, generation), connection in zip(rows, cycle(connections), strict=False)
        ]
        at_once = max(1, round(len(frames) * TICK_SECONDS / wanted["interval_s"]))
        if at_once > len(connections):
            raise ValueError(f"{at_once} heartbeats at once need as many connections, not {len(connections)}")
        endless = cycle(frames)
        began = time.monotonic()
        for tick in range(round(wanted["seconds"] / TICK_SECONDS)):
            beat(list(islice(endless, at_once)), milliseconds)
            pause(max(0.0, began + (tick + 1) * TICK_SECONDS - time.monotonic()))
        seconds = time.monotonic() - began
    answer(
        {
            "records": len(milliseconds),
            "heartbeats_per_s": len(milliseconds) / seconds,
            "seconds": seconds,
            **latency_figures(milliseconds),
        }
    )


if __name__ == "__main__":
    main()
