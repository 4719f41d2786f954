"""Child processes: their output, their exit, and that they never outlive their parent."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from odradek.testing.waiting import wait_until
from odradek_operator.embedded.child import ChildProcess

STUBBORN = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
WILLING = "import time; print('up', flush=True); time.sleep(60)"
DEADLINE_SECONDS = 30.0


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Callable[[str], ChildProcess]]:
    made: list[ChildProcess] = []

    def make(program: str) -> ChildProcess:
        one = ChildProcess("child", [sys.executable, "-c", program], tmp_path / "logs" / "child.log")
        made.append(one)
        return one

    yield make
    for one in made:
        one.kill()


def has_printed(one: ChildProcess, text: str) -> Callable[[], bool]:
    return lambda: one.log_path.exists() and text in one.log_path.read_text()


def test_a_child_that_is_asked_stops(child: Callable[[str], ChildProcess]) -> None:
    one = child(WILLING)
    assert one.pid is None
    assert not one.running
    one.start()
    pid = one.pid
    one.start()
    assert one.pid == pid
    wait_until(has_printed(one, "up"), what="the child's first words")
    one.stop()
    assert not one.running
    assert one.exit_code == -signal.SIGTERM
    one.stop()


def test_a_paused_child_stops_too(child: Callable[[str], ChildProcess]) -> None:
    one = child(WILLING)
    one.start()
    wait_until(has_printed(one, "up"), what="the child's first words")
    one.send(signal.SIGSTOP)
    one.stop()
    assert one.exit_code == -signal.SIGTERM


def test_a_child_that_will_not_stop_is_killed(child: Callable[[str], ChildProcess]) -> None:
    one = child(STUBBORN)
    one.start()
    wait_until(has_printed(one, "up"), what="the child's first words")
    one.stop(grace_seconds=0.01)
    assert one.exit_code == -signal.SIGKILL


def test_a_child_has_its_command_in_its_own_process_and_group(child: Callable[[str], ChildProcess]) -> None:
    one = child("import os; print(os.getpid(), os.getpgid(0), flush=True)")
    one.start()
    assert one.wait(DEADLINE_SECONDS)
    assert one.log_path.read_text().split() == [str(one.pid)] * 2


def test_the_last_line_of_output_is_reported(child: Callable[[str], ChildProcess]) -> None:
    one = child("import sys; print('first'); sys.exit('no listener\\n')")
    one.start()
    assert one.wait(DEADLINE_SECONDS)
    assert one.how_it_ended() == f"ended with 1; the last line of its output is: no listener (log: {one.log_path})."


def test_a_command_that_does_not_exist_is_reported(tmp_path: Path) -> None:
    one = ChildProcess("child", ["/no/such/program"], tmp_path / "log")
    one.start()
    assert one.wait(DEADLINE_SECONDS)
    assert one.how_it_ended().startswith(
        "ended with 127; the last line of its output is: /no/such/program cannot be executed: No such file"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's part of it is Linux")
def test_a_child_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    program = f"""
import sys, time
from pathlib import Path
from odradek_operator.embedded.child import ChildProcess
one = ChildProcess("child", [sys.executable, "-c", {STUBBORN!r}], Path({str(tmp_path / "log")!r}))
one.start()
print(one.pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        log = tmp_path / "log"
        wait_until(lambda: log.exists() and "up" in log.read_text(), what="the child's first words")
        parent.kill()
        wait_until(lambda: not _lives(pid), what="the child's end")


def _lives(pid: int) -> bool:
    """Whether the process exists and is not a zombie that its new parent has not reaped yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
