"""Tests that processes are identified by id and start time, and that a failed command's error contains the reason."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube import host


@given(
    name=st.text(min_size=1, max_size=15).filter(lambda text: "\n" not in text),
    threads=st.integers(1, 2**20),
    started=st.integers(0, 2**60),
)
def test_what_a_process_is_is_found_whatever_the_name_of_the_program(name: str, threads: int, started: int) -> None:
    rest = " ".join(["S", *["1"] * 16, str(threads), "1", str(started), "7", "8"])

    assert host.parse_stat(f"12 ({name}) {rest}\n") == host.Stat(state="S", threads=threads, started=started)


@pytest.mark.parametrize(
    ("state", "threads", "ended"), [("S", 1, False), ("Z", 1, True), ("X", 1, True), ("Z", 7, False)]
)
def test_a_zombie_whose_threads_still_hold_its_ports_has_not_ended(state: str, threads: int, ended: bool) -> None:
    assert host.Stat(state=state, threads=threads, started=1).ended is ended


@given(pid=st.integers(1, 2**22), started=st.integers(0, 2**60))
def test_a_process_survives_being_written_down(pid: int, started: int) -> None:
    process = host.Process(pid=pid, started=started)

    assert host.parse_process(process.line()) == process


@pytest.mark.parametrize("text", ["", "12", "12 ", "a b", "1 2 3"])
def test_a_file_that_was_cut_short_names_no_process(text: str) -> None:
    assert host.parse_process(text) is None


def test_a_process_that_got_the_id_of_another_is_neither_alive_nor_killed() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        found = host.identify(child.pid)
        assert found is not None and host.alive(found)
        stranger = replace(found, started=found.started - 1)

        assert not host.alive(stranger)
        host.kill([stranger])
        host.kill_and_wait([stranger])
        assert child.poll() is None
    finally:
        child.kill()
        child.communicate()
    assert not host.alive(found)


def test_a_zombie_is_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    try:
        host.until(lambda: host.identify(child.pid) is None, what="the child's end", seconds=60)
        assert Path(f"/proc/{child.pid}").exists(), "it must not have been waited for yet"
    finally:
        child.wait()


def test_a_command_that_fails_says_why() -> None:
    with pytest.raises(host.HarnessError, match="ended with 3: why"):
        host.run([sys.executable, "-c", "import sys; print('why'); sys.exit(3)"])
    with pytest.raises(host.HarnessError, match="is not installed"):
        host.run(["no-such-program-of-odradek"])


def test_waiting_ends_with_the_name_of_what_did_not_come() -> None:
    with pytest.raises(host.HarnessError, match="the moon did not come true"):
        host.until(lambda: None, what="the moon", seconds=0)
