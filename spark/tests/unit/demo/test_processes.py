"""Child processes: their events, one error message if they fail, and no processes left at the end."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from odradek_demo.processes import Child, ChildError, ChildEvent


def child(tmp_path: Path, code: str) -> Child:
    return Child("The job", [sys.executable, "-c", code], tmp_path / "logs" / "job.log", environment=os.environ)


def until(running: Child, seen: list[ChildEvent], *, silence_seconds: float = 60) -> ChildEvent:
    return running.until("result", seen.append, timeout_seconds=60, silence_seconds=silence_seconds)


def test_events_until_the_result(tmp_path: Path) -> None:
    code = (
        "print('{\"event\": \"progress\", \"done\": 1}'); print('a line'); print('{broken'); "
        'print(\'{"event": "result", "rows": 5}\')'
    )
    seen: list[ChildEvent] = []
    with child(tmp_path, code) as running:
        assert until(running, seen)["rows"] == 5
        running.wait()
    assert seen == [{"event": "progress", "done": 1}]
    assert (tmp_path / "logs" / "job.log").read_text() == "a line\n{broken\n"


def test_a_failure_is_the_childs_own_sentence_and_its_log(tmp_path: Path) -> None:
    code = "import sys; sys.stderr.write('noise\\nError: no such topic\\nnoise\\n'); sys.exit(3)"
    with (
        child(tmp_path, code) as running,
        pytest.raises(ChildError, match=r"The job ended with exit code 3: no such topic\n.*job\.log"),
    ):
        until(running, [])


def test_without_a_sentence_the_end_of_the_log_is_told(tmp_path: Path) -> None:
    with (
        child(tmp_path, "raise SystemExit(open('/nonexistent'))") as running,
        pytest.raises(ChildError, match="nonexistent"),
    ):
        until(running, [])


def test_a_result_does_not_hide_a_bad_end(tmp_path: Path) -> None:
    with child(tmp_path, 'print(\'{"event": "result"}\'); raise SystemExit(1)') as running:
        until(running, [])
        with pytest.raises(ChildError, match="exit code 1"):
            running.wait()


def test_leaving_the_block_ends_the_child_and_its_children(tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    reading = os.open(alive, os.O_RDONLY | os.O_NONBLOCK)
    grandchild = (
        f"import signal; it = open({str(alive)!r}, 'w'); print('{{\"event\": \"result\"}}', flush=True); signal.pause()"
    )
    with child(tmp_path, f"import subprocess, sys; subprocess.run([sys.executable, '-c', {grandchild!r}])") as running:
        until(running, [])
        with pytest.raises(BlockingIOError):
            os.read(reading, 1)
    # A read returns the end of the file only if no process has the other side of the pipe open.
    assert os.read(reading, 1) == b""
    os.close(reading)
    running.stop()


def test_silence_has_an_end(tmp_path: Path) -> None:
    with child(tmp_path, "import signal; signal.pause()") as running, pytest.raises(ChildError, match="sent no event"):
        until(running, [], silence_seconds=0.01)
