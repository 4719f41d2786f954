"""The command `odradek up`: its output, and errors that it reports before anything starts."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from odradek_operator.embedded.progress import Event, ProgressKind
from odradek_operator.embedded.up_command import RecentEvents, json_report, text_report, up

READY = Event(
    ProgressKind.READY,
    "ready",
    "bootstrap 127.0.0.1:9092,127.0.0.1:9093 zookeeper 127.0.0.1:2181",
    {"bootstrap": "127.0.0.1:9092,127.0.0.1:9093"},
)
LONG = Event(ProgressKind.STATUS, "topic [red]orders", "word " * 60, {"reason": "Offline"}, good=False)


@pytest.mark.parametrize("color", [True, False])
def test_the_ready_line_is_one_line_that_programs_can_wait_for(capsys: pytest.CaptureFixture[str], color: bool) -> None:
    text_report(color=color)(READY)
    assert capsys.readouterr().out == f"ready: {READY.message}\n"


def test_an_event_is_one_line_however_long(capsys: pytest.CaptureFixture[str]) -> None:
    text_report(color=False)(LONG)
    assert capsys.readouterr().out.rstrip() == f"topic [red]orders: {LONG.message}".rstrip()


def test_events_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    json_report(LONG)
    assert json.loads(capsys.readouterr().out) == {
        "event": "status",
        "subject": "topic [red]orders",
        "message": LONG.message,
        "good": False,
        "reason": "Offline",
    }


def test_wrong_manifests_are_told_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("{apiVersion: odradek.dev/v1, kind: Cluster, metadata: {name: c}, spec: {x: 1,\n y: 2}}")
    result = CliRunner().invoke(up, ["-f", str(path), "--data-dir", str(tmp_path / "data")])
    assert result.exit_code == 1
    first, second = result.output.splitlines()
    assert first.startswith(f"Error: {path}:1: Cluster c: spec.x: is not a field here")
    assert second.startswith(f"{path}:2: Cluster c: spec.y: is not a field here")
    assert not (tmp_path / "data").exists()


def test_a_port_of_the_console_in_use_is_reported_before_anything_starts(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("{apiVersion: odradek.dev/v1, kind: Cluster, metadata: {name: c}, spec: {}}")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        arguments = ["-f", str(path), "--data-dir", str(tmp_path / "data"), "--console-port", str(port)]
        result = CliRunner().invoke(up, arguments)
    assert result.exit_code == 1
    assert f"cannot listen on 127.0.0.1:{port}" in result.output
    assert not (tmp_path / "data").exists()


def test_the_address_of_the_console_precedes_the_ready_line() -> None:
    seen: list[Event] = []
    events = RecentEvents(seen.append)
    events.console_url = "http://127.0.0.1:1/"
    for event in (LONG, READY):
        events(event)
    assert [(event.subject, event.message) for event in seen[1:]] == [
        ("console", "http://127.0.0.1:1/"),
        ("ready", READY.message),
    ]
    assert seen[-1].details == {**READY.details, "console": "http://127.0.0.1:1/"}
    assert [event for _, event in events.recent()] == [READY, LONG]


@pytest.mark.parametrize(
    ("arguments", "code"), [([], 2), (["-f", "x", "--base-port", "0"], 2), (["-f", "/no/such/file"], 1)]
)
def test_exit_codes(arguments: list[str], code: int) -> None:
    assert CliRunner().invoke(up, arguments).exit_code == code


def test_help_teaches_with_an_example() -> None:
    assert "odradek up -f manifests/examples/" in CliRunner().invoke(up, ["--help"]).output
