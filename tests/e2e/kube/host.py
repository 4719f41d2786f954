"""Commands, processes and waiting: everything that the harness asks of the operating system.

A command returns its output, or raises `HarnessError` with what it printed. Every other module uses this one.
Invariant: a process is identified by its id *and* its start time, so that no unrelated process with a reused id is ever
killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

POLL_SECONDS: Final = 0.1
_TAIL: Final = 6000
"""The number of characters of a failed command's output that its error shows."""
_T = TypeVar("_T")
_pause = threading.Event()


@dataclass(frozen=True, slots=True, kw_only=True)
class LongRun:
    """How `run_long` runs a command, and how often it reports."""

    folder: Path | None = None
    environment: Mapping[str, str] | None = None
    seconds: float = 3600.0
    """The command is killed when it runs longer."""
    show_output: bool = False
    heartbeat_seconds: float = 15.0


class HarnessError(Exception):
    """The cluster could not be created, changed or removed. The text says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process of this boot: its id and its start time in clock ticks since boot (proc(5), field 22 of stat)."""

    pid: int
    started: int

    def line(self) -> str:
        """The line that files store. `parse_process` reads it, possibly after this program has ended."""
        return f"{self.pid} {self.started}\n"


def run(arguments: Sequence[str | Path], *, check: bool = True, stdin: str | None = None) -> str:
    """Run a command to its end and return its standard output. Raise `HarnessError` with both outputs if it fails."""
    command = [str(argument) for argument in arguments]
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise HarnessError(f"{command[0]} is not installed") from error
    if check and done.returncode != 0:
        raise HarnessError(f"{' '.join(command)} ended with {done.returncode}: {(done.stderr + done.stdout).strip()}")
    return done.stdout


def run_long(
    arguments: Sequence[str | Path],
    *,
    what: str,
    say: Callable[[str], None],
    options: LongRun,
) -> None:
    """Run a command that takes minutes and report its progress. Raise `HarnessError` with the end of its output.

    With `options.show_output` each line of the command is reported when it is printed. While nothing is reported for
    `options.heartbeat_seconds`, a line says how long `what` has been running.
    """
    with tempfile.NamedTemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        child = subprocess.Popen(
            [str(argument) for argument in arguments],
            cwd=options.folder,
            env=options.environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        with child:
            try:
                _follow(child, Path(output.name), what=what, say=say, options=options)
            except BaseException:
                child.kill()
                raise
        if child.returncode != 0:
            output.seek(0)
            raise HarnessError(f"{what} failed:\n{output.read()[-_TAIL:].strip()}")


def _follow(
    child: subprocess.Popen[bytes], output: Path, *, what: str, say: Callable[[str], None], options: LongRun
) -> None:
    """Report a command's progress until it ends."""
    began = reported = time.monotonic()
    with output.open(encoding="utf-8", errors="replace") as reader:
        while True:
            ended = child.poll() is not None
            for line in reader if options.show_output else ():
                say(line.rstrip())
                reported = time.monotonic()
            if ended:
                return
            now = time.monotonic()
            if now - began > options.seconds:
                raise HarnessError(f"{what} did not end within {options.seconds:g} s")
            if now - reported >= options.heartbeat_seconds:
                minutes, seconds = divmod(int(now - began), 60)
                say(f"{what}: {minutes}:{seconds:02} so far")
                reported = now
            _pause.wait(POLL_SECONDS)


def succeeds(arguments: Sequence[str | Path]) -> bool:
    """Return whether a command that may fail has ended with exit status 0."""
    command = [str(argument) for argument in arguments]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def until(condition: Callable[[], _T | None], *, what: str, seconds: float) -> _T:
    """Poll until the condition returns something true. Raise `HarnessError` that names `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        if result := condition():
            return result
        if time.monotonic() > deadline:
            raise HarnessError(f"{what} did not come true within {seconds:g} s")
        _pause.wait(POLL_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stat:
    """The fields of /proc/<pid>/stat (proc(5)) that the harness uses."""

    state: str
    threads: int
    started: int

    @property
    def ended(self) -> bool:
        """Return whether only the exit status of the process is left.

        The first thread of a killed program may be a zombie while other threads are still ending and hold its files and
        ports.
        """
        return self.state in "ZX" and self.threads <= 1


def parse_stat(text: str) -> Stat:
    """Parse the text of /proc/<pid>/stat. The program name in it may contain spaces and parentheses."""
    fields = text[text.rindex(")") + 2 :].split()
    return Stat(state=fields[0], threads=int(fields[17]), started=int(fields[19]))


def identify(pid: int) -> Process | None:
    """The process with this id, or None if no such process runs. A zombie does not count as running."""
    try:
        found = parse_stat(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace"))
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if found.ended else Process(pid=pid, started=found.started)


def this_process() -> Process:
    """The process that runs this code."""
    found = identify(os.getpid())
    if found is None:
        raise HarnessError("/proc does not show this process: is it mounted?")
    return found


def parse_process(text: str) -> Process | None:
    """Parse a line that `Process.line` returned. Return None if the file is truncated because its writer died."""
    parts = text.split()
    if len(parts) != 2 or not all(part.isdigit() for part in parts):
        return None
    return Process(pid=int(parts[0]), started=int(parts[1]))


def read_process(path: Path) -> Process | None:
    """The process recorded in a file, running or not. None if the file is missing or truncated."""
    try:
        return parse_process(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def alive(process: Process | None) -> bool:
    """Return whether exactly this process still runs."""
    return process is not None and identify(process.pid) == process


def kill(processes: Iterable[Process], number: int = signal.SIGKILL) -> None:
    """Send a signal to the processes that still run."""
    for process in processes:
        if alive(process):
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)


def kill_and_wait(processes: Iterable[Process], *, seconds: float = 20.0) -> None:
    """Kill processes and wait until the last one has ended. Raise `HarnessError` if one still runs after `seconds`."""
    left = list(processes)
    kill(left)

    def gone() -> bool:
        reap()
        return not any(alive(process) for process in left)

    until(gone, what=f"the end of processes {[process.pid for process in left]}", seconds=seconds)


_children: dict[int, subprocess.Popen[bytes]] = {}


def spawn(arguments: Sequence[str | Path], *, log: Path, namespace: str) -> Process:
    """Start a daemon in a network namespace but in this mount namespace. Append its outputs to a file.

    `ip netns exec` would hide /sys/fs/cgroup, which the kubelet needs. The daemon does not get the proxy settings of
    the environment, because everything that a cluster connects to is on this machine.
    """
    command = ["nsenter", f"--net=/run/netns/{namespace}", *(str(argument) for argument in arguments)]
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    with log.open("ab") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    _children[child.pid] = child
    found = identify(child.pid)
    if found is None:
        raise HarnessError(f"{command[2]} ended at once: see {log}")
    return found


def reap() -> None:
    """Collect the exit status of child processes that have ended. Until then they are zombies."""
    for pid, child in list(_children.items()):
        if child.poll() is not None:
            del _children[pid]
