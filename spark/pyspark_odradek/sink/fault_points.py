"""Places at which tests kill or stop a process: between any two effects of a task and of the driver.

Without the environment variable ODRADEK_SINK_FAULTS, which only tests set, `reach` does nothing. It names a folder.
Each visit of a point creates the file `POINT.N` there with the process id, N = 1, 2, …, over all processes. If the file
`POINT.N.action` exists, its content says what happens:

    kill    the process kills itself
    raise   `SinkFaultError`
    pause   the process reads the FIFO `POINT.N.gate` until its end, so that a test can kill others meanwhile
"""

from __future__ import annotations

import itertools
import os
import signal
from enum import Enum
from pathlib import Path
from typing import Final

from pyspark_odradek.sink.decisions import SinkError

FAULTS_VARIABLE: Final = "ODRADEK_SINK_FAULTS"


class SinkFaultError(SinkError):
    """The fault that a test has asked for."""


class FaultPoint(Enum):
    """The points, in the order in which a task and then the driver reach them."""

    TASK_STARTED = "task-started"
    TASK_CHECKED = "task-checked"
    """The task knows whether its batch is decided."""
    TASK_INITIALIZED = "task-initialized"
    """The coordinator has the transactional id."""
    TASK_WRITTEN = "task-written"
    """All records are sent; some may not be acknowledged."""
    TASK_PREPARED = "task-prepared"
    TASK_ENDED = "task-ended"
    """Only the answer to the driver is missing."""
    DRIVER_STARTED = "driver-started"
    DRIVER_LEADS = "driver-leads"
    """Other drivers are fenced."""
    DRIVER_KNOWS = "driver-knows"
    """The driver has read the last decision."""
    DRIVER_APPENDED = "driver-appended"
    """The decision is in the log, in an open transaction."""
    DRIVER_DECIDED = "driver-decided"
    DRIVER_COMMITS = "driver-commits"
    """Before each transaction that the driver commits."""
    DRIVER_COMMITTED = "driver-committed"
    DRIVER_LISTED = "driver-listed"
    """The driver knows which transactions are left."""
    DRIVER_ABORTS = "driver-aborts"
    """Before each transaction that the driver aborts."""
    DRIVER_ENDED = "driver-ended"
    """Spark does not know yet that the batch is committed."""


def reach(point: FaultPoint) -> None:
    """Do what a test wants at this visit of a point. Raises `SinkFaultError`."""
    folder = os.environ.get(FAULTS_VARIABLE)
    if folder:
        _visit(Path(folder), point)


def _visit(folder: Path, point: FaultPoint) -> None:
    for number in itertools.count(1):
        visit = folder / f"{point.value}.{number}"
        try:
            with visit.open("x", encoding="ascii") as file:
                file.write(str(os.getpid()))
        except FileExistsError:
            continue
        break
    action = visit.with_name(f"{visit.name}.action")
    if not action.exists():
        return
    wanted = action.read_text(encoding="ascii").strip()
    if wanted == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif wanted == "pause":
        visit.with_name(f"{visit.name}.gate").read_bytes()
    elif wanted == "raise":
        raise SinkFaultError(f"a test wants an error at {visit.name}")
    else:
        raise ValueError(f"{action} has the unknown action {wanted!r}")
