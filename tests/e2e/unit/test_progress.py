"""Tests that long work reports its progress while it runs, even though pytest captures output."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from kube.host import HarnessError, LongRun, run_long

UNTIL_FILE_EXISTS = "import sys, pathlib, time\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)"


def test_progress_is_not_captured(capfd: pytest.CaptureFixture[str], say: Callable[[str], None]) -> None:
    sys.stderr.write("captured")
    say("a line of progress")

    assert capfd.readouterr().err == "captured"


def test_a_long_command_says_how_long_it_has_been_running(tmp_path_factory: pytest.TempPathFactory) -> None:
    end = tmp_path_factory.mktemp("run") / "end"
    lines: list[str] = []

    def say(text: str) -> None:
        lines.append(text)
        if len(lines) == 3:
            end.touch()

    command = [sys.executable, "-c", UNTIL_FILE_EXISTS, end]
    run_long(command, what="building x", say=say, options=LongRun(heartbeat_seconds=0))

    assert lines[0] == "building x: 0:00 so far"
    assert len(lines) >= 3


def test_the_output_of_a_long_command_is_reported_line_by_line() -> None:
    lines: list[str] = []
    command = [sys.executable, "-c", "print('one'); print('two')"]

    run_long(command, what="building x", say=lines.append, options=LongRun(show_output=True))

    assert lines == ["one", "two"]


def test_a_long_command_that_fails_shows_the_end_of_its_output() -> None:
    command = [sys.executable, "-c", "print('the reason'); raise SystemExit(2)"]

    with pytest.raises(HarnessError, match="building x failed:\nthe reason"):
        run_long(command, what="building x", say=[].append, options=LongRun())
