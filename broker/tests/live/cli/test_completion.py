"""Completion in a shell: the names from a cluster, and the script in a real bash on a terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from odradek import BlockingAdmin, NewTopic
from odradek.cli.main import cli
from odradek.testing.in_process import InProcessBroker

_SECONDS = 60.0


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the configuration, without variables of the person who runs the tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("ODRADEK_PROFILE", "ODRADEK_BOOTSTRAP_SERVER", "ODRADEK_COMMAND_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture(scope="module")
def topic(odradek_broker: InProcessBroker) -> str:
    name = f"completed-{uuid4().hex}"
    with BlockingAdmin(odradek_broker.bootstrap) as admin:
        admin.create_topics([NewTopic(name=name, partitions=1, replication_factor=1)])
    return name


def completed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """Return the completions of the last word, as the script asks for them."""
    monkeypatch.setenv("COMP_WORDS", " ".join(["odradek", *words]))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    monkeypatch.setenv("_ODRADEK_COMPLETE", "bash_complete")
    with pytest.raises(SystemExit):
        cli.main(prog_name="odradek")
    output = capsys.readouterr()
    assert output.err == ""
    return [line.partition(",")[2] for line in output.out.splitlines() if line]


def test_commands_options_and_names_are_completed(
    odradek_broker: InProcessBroker, topic: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask(*words: str) -> list[str]:
        return completed(monkeypatch, capsys, *words)

    assert ask("prod") == ["produce"]
    assert ask("produce", "--compr") == ["--compression"]
    assert ask("consume", "-b", odradek_broker.bootstrap, "completed-") == [topic]
    assert ask("produce", "-b", odradek_broker.bootstrap, "no-such") == []
    monkeypatch.setenv("ODRADEK_BOOTSTRAP_SERVER", odradek_broker.bootstrap)
    assert ask("consume", topic[:-4]) == [topic]


def test_groups_and_profiles_are_completed(
    odradek_broker: InProcessBroker, topic: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from click.testing import CliRunner

    made = CliRunner().invoke(cli, ["profile", "create", "here", "-b", odradek_broker.bootstrap, "--use"])
    assert made.exit_code == 0, made.output
    reset = ["group", "reset", f"group-{topic}", "--topic", topic, "--to-earliest", "--execute"]
    assert CliRunner().invoke(cli, reset).exit_code == 0
    assert completed(monkeypatch, capsys, "group", "describe", "group-completed") == [f"group-{topic}"]
    assert completed(monkeypatch, capsys, "consume", "--group", "group-completed") == [f"group-{topic}"]
    assert completed(monkeypatch, capsys, "topic", "list", "--profile", "he") == ["here"]
    assert completed(monkeypatch, capsys, "profile", "show", "") == ["here"]


def test_nothing_is_completed_without_a_cluster(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert completed(monkeypatch, capsys, "consume", "-b", "127.0.0.1:1", "a") == []
    assert completed(monkeypatch, capsys, "consume", "-b", "nonsense", "a") == []
    (config / "odradek").mkdir()
    (config / "odradek" / "profiles.yaml").write_text("- wrong")
    assert completed(monkeypatch, capsys, "consume", "a") == []
    assert completed(monkeypatch, capsys, "profile", "show", "a") == []


class Terminal:
    """A bash on a pseudo-terminal."""

    def __init__(self, folder: Path) -> None:
        """Start bash with an `odradek` that runs this interpreter."""
        script = folder / "odradek"
        script.write_text(f'#!/bin/sh\nexec {sys.executable} -m odradek.cli.main "$@"\n')
        script.chmod(0o755)
        self._ours, theirs = pty.openpty()
        environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "INPUTRC": os.devnull, "TERM": "dumb"}
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-i"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            start_new_session=True,
        )
        os.close(theirs)
        self._seen = b""

    def type(self, keys: str, *, until: str) -> None:
        """Press keys, and wait until the terminal shows a text after what it showed before."""
        os.write(self._ours, keys.encode())
        deadline = time.monotonic() + _SECONDS
        while until.encode() not in self._seen:
            left = deadline - time.monotonic()
            readable, _, _ = select.select([self._ours], [], [], max(0.0, left))
            assert readable, f"the terminal shows {self._seen!r} instead of {until!r}"
            self._seen += os.read(self._ours, 4096)
        self._seen = self._seen.partition(until.encode())[2]

    def close(self) -> None:
        """End bash."""
        self._process.kill()
        self._process.wait()
        os.close(self._ours)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    folder = tmp_path / "bin"
    folder.mkdir()
    terminal = Terminal(folder)
    yield terminal
    terminal.close()


def test_the_script_completes_in_bash(terminal: Terminal, odradek_broker: InProcessBroker, topic: str) -> None:
    terminal.type("PS1=; source <(odradek completion bash); echo sour''ced\n", until="sourced\r\n")
    terminal.type("odradek prod\t", until="odradek produce ")
    terminal.type(f"-b {odradek_broker.bootstrap} completed-\t", until=topic)
    terminal.type("\x15echo the''end\n", until="theend\r\n")


@pytest.mark.parametrize(("shell", "word"), [("zsh", "#compdef odradek"), ("fish", "complete --no-files --command")])
def test_the_scripts_of_other_shells(shell: str, word: str) -> None:
    script = subprocess.run(
        [sys.executable, "-m", "odradek.cli.main", "completion", shell], capture_output=True, text=True, check=True
    )
    assert word in script.stdout
    assert "_ODRADEK_COMPLETE" in script.stdout
