"""The parent of a broker process, with real processes that die, hang, exit and get signals."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from odradek.app.supervisor import BEAT_INTERVAL_MS, DISK_WAIT_FACTOR, Silence
from odradek.testing.waiting import wait_until

PROGRAM = """
import os, signal, sys, time
from odradek.app.supervisor import Supervision, supervise

def report(line):
    print(line, flush=True)

def work(lifeline):
    report(f"child {os.getpid()}")
{work}

def ended(credentials):
    report(f"ended {credentials[0]} {credentials[1].decode()}")

def disk_wait(child):
{disk_wait}

sys.exit(supervise(work, Supervision(hang_timeout_ms=HANG, end_session=ended, disk_wait=disk_wait)))
"""

PASSWORD = "b'0123456789abcdef'"


@contextmanager
def supervised(
    work: str, hang_timeout_ms: int = 0, *, disk_wait: str = "return None"
) -> Iterator[subprocess.Popen[str]]:
    """Start a parent whose child runs the lines of `work`. It finds disk waits with the lines of `disk_wait`."""
    program = PROGRAM.replace("HANG", str(hang_timeout_ms))
    for name, lines in (("{work}", work), ("{disk_wait}", disk_wait)):
        program = program.replace(name, "\n".join(f"    {line}" for line in lines.strip().splitlines()))
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(timeout=60)
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()


def child_of(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    word, _, number = process.stdout.readline().partition(" ")
    assert word == "child"
    return int(number)


def outcome(process: subprocess.Popen[str]) -> tuple[int, list[str], str]:
    """Return the exit code, the output after the pid of the child, and standard error."""
    assert process.stdout is not None and process.stderr is not None
    # `communicate` is not used, because it ignores the output that `readline` has already buffered.
    output, errors = process.stdout.read(), process.stderr.read()
    return process.wait(timeout=60), output.splitlines(), errors


@pytest.mark.parametrize(("work", "code"), [("return 0", 0), ("return 3", 3), ("sys.exit(4)", 4), ("1 / 0", 1)])
def test_the_childs_exit_code_is_the_parents(work: str, code: int) -> None:
    with supervised(work) as process:
        child_of(process)
        assert outcome(process)[:2] == (code, [])


def test_a_dead_childs_session_is_ended() -> None:
    with supervised(f"lifeline.beat((77, {PASSWORD}))\nos.kill(os.getpid(), signal.SIGKILL)") as process:
        child_of(process)
        assert outcome(process)[:2] == (128 + signal.SIGKILL, ["ended 77 0123456789abcdef"])


def test_the_last_of_several_sessions_is_ended() -> None:
    work = f"lifeline.beat((1, {PASSWORD}))\nlifeline.beat(None)\nlifeline.beat((2, {PASSWORD}))\nos.abort()"
    with supervised(work) as process:
        child_of(process)
        assert outcome(process)[:2] == (128 + signal.SIGABRT, ["ended 2 0123456789abcdef"])


def test_a_session_that_the_child_has_ended_is_not_ended_again() -> None:
    with supervised(f"lifeline.beat((1, {PASSWORD}))\nlifeline.beat(None)\nreturn 0") as process:
        child_of(process)
        assert outcome(process)[:2] == (0, [])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_are_forwarded(number: signal.Signals) -> None:
    work = f"signal.signal({int(number)}, lambda *_: os._exit(9))\nreport('ready')\nwhile True: signal.pause()"
    with supervised(work) as process:
        child_of(process)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert outcome(process)[0] == 9


def test_a_hanging_child_prints_its_stacks_and_is_killed() -> None:
    work = f"lifeline.beat((5, {PASSWORD}))\nwhile True: signal.pause()"
    with supervised(work, hang_timeout_ms=1) as process:
        child_of(process)
        code, printed, errors = outcome(process)
    assert (code, printed) == (128 + signal.SIGKILL, ["ended 5 0123456789abcdef"])
    assert "in work" in errors, "the stack contains the function in which the child hangs"


def test_a_child_that_waits_for_a_disk_is_not_killed() -> None:
    """It ends because of the signal that the reader of its state sends; otherwise the parent would kill it."""
    work = f"signal.signal(signal.SIGUSR1, lambda *_: os._exit(6))\nlifeline.beat((5, {PASSWORD}))"
    work += "\nwhile True: signal.pause()"
    wait = "os.kill(child, signal.SIGUSR1)\nreturn 'folio_wait_bit'"
    with supervised(work, hang_timeout_ms=300, disk_wait=wait) as process:
        child_of(process)
        code, printed, errors = outcome(process)
    assert (code, printed) == (6, ["ended 5 0123456789abcdef"])
    assert errors.count("because it waits for a disk (folio_wait_bit)") == 1
    assert "killed only if this lasts for 3 s" in errors


def test_a_child_that_waits_for_a_disk_too_long_is_killed() -> None:
    work = f"lifeline.beat((5, {PASSWORD}))\nwhile True: signal.pause()"
    with supervised(work, hang_timeout_ms=1, disk_wait="return ''") as process:
        child_of(process)
        code, printed, errors = outcome(process)
    assert (code, printed) == (128 + signal.SIGKILL, ["ended 5 0123456789abcdef"])
    assert "of which it waited for a disk" in errors


def test_a_paused_child_is_killed() -> None:
    work = f"lifeline.beat((5, {PASSWORD}))\nos.kill(os.getpid(), signal.SIGSTOP)"
    with supervised(work, hang_timeout_ms=1) as process:
        child_of(process)
        assert outcome(process)[:2] == (128 + signal.SIGKILL, ["ended 5 0123456789abcdef"])


def test_a_child_without_a_first_heartbeat_is_never_overdue() -> None:
    work = "for _ in range(3): os.waitpid(os.spawnlp(os.P_NOWAIT, 'sleep', 'sleep', '0.6'), 0)\nreturn 6"
    with supervised(work, hang_timeout_ms=1) as process:
        child_of(process)
        assert outcome(process)[0] == 6


def test_the_child_dies_with_its_parent() -> None:
    with supervised("while True: signal.pause()") as process:
        child = child_of(process)
        process.kill()
        process.wait(timeout=60)

        def is_gone() -> bool:
            stat = Path(f"/proc/{child}/stat")
            return not stat.exists() or stat.read_text(encoding="ascii").rpartition(")")[2].split()[0] == "Z"

        wait_until(is_gone, what="the end of the child")


def test_only_time_in_which_the_parent_runs_counts() -> None:
    silence = Silence(limit_ms=4 * BEAT_INTERVAL_MS)
    silence.heard()
    silence.passed(3_600_000)
    assert silence.lasting_ms == 2 * BEAT_INTERVAL_MS
    assert not silence.is_too_long
    for _ in range(3):
        silence.passed(BEAT_INTERVAL_MS)
    assert silence.is_too_long
    silence.heard()
    assert not silence.is_too_long


def test_without_a_limit_no_silence_is_too_long() -> None:
    silence = Silence(limit_ms=0)
    silence.heard()
    for _ in range(100):
        silence.passed(BEAT_INTERVAL_MS)
    assert not silence.is_too_long


def test_waits_for_a_disk_have_their_own_limit() -> None:
    limit_ms = 4 * BEAT_INTERVAL_MS
    silence = Silence(limit_ms)
    silence.heard()
    for _ in range(3):
        silence.passed(BEAT_INTERVAL_MS)
    assert not silence.is_excused
    for _ in range(4 * DISK_WAIT_FACTOR):
        silence.passed(BEAT_INTERVAL_MS, waits_for_disk=True)
        assert not silence.is_too_long
    assert silence.is_excused
    assert (silence.lasting_ms, silence.disk_wait_ms) == (3 * BEAT_INTERVAL_MS, DISK_WAIT_FACTOR * limit_ms)
    silence.passed(1, waits_for_disk=True)
    assert silence.is_too_long
    assert not silence.is_excused
    silence.heard()
    assert not silence.is_too_long


def test_a_disk_wait_does_not_excuse_a_loop_that_hangs_afterwards() -> None:
    silence = Silence(limit_ms=2 * BEAT_INTERVAL_MS)
    silence.heard()
    silence.passed(BEAT_INTERVAL_MS, waits_for_disk=True)
    for _ in range(3):
        silence.passed(BEAT_INTERVAL_MS)
    assert silence.is_too_long
