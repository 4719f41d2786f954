"""The command line of the demonstration: the errors that it reports before it starts processes, and its table."""

from __future__ import annotations

import fcntl
import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from odradek_demo.demo_command import demo
from odradek_demo.screen import CarrierRow, Screen


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(demo, list(arguments), env=environment)


def test_help_says_what_it_does_and_how() -> None:
    result = run("--help")
    assert result.exit_code == 0
    assert "336,776" in result.output
    assert "--base-port" in result.output
    assert "odradek demo --output json" in result.output


def test_a_missing_java_is_one_sentence(tmp_path: Path) -> None:
    result = run("--data-dir", str(tmp_path / "d"), PATH=str(tmp_path))
    assert result.exit_code == 1
    assert (
        result.output.strip() == "Error: ZooKeeper and Spark need Java 17 or newer, but there is no 'java' on the PATH."
    )


@pytest.fixture
def path_with_java(tmp_path: Path) -> str:
    """A PATH that contains a `java`. The tests that use it end before they run it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "java").write_text("#!/bin/sh\nexit 1\n")
    (folder / "java").chmod(0o755)
    return str(folder)


def test_a_folder_of_someone_else_is_never_emptied(tmp_path: Path, path_with_java: str) -> None:
    data = tmp_path / "precious"
    data.mkdir()
    (data / "thesis.tex").touch()
    result = run("--data-dir", str(data), PATH=path_with_java)
    assert result.exit_code == 1
    assert "was not created by a demonstration" in result.output
    assert (data / "thesis.tex").exists()


def test_a_second_demonstration_in_the_same_folder_is_refused(tmp_path: Path, path_with_java: str) -> None:
    with (tmp_path / ".d.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = run("--data-dir", str(tmp_path / "d"), PATH=path_with_java)
    assert result.exit_code == 1
    assert "another demonstration is running" in result.output


def test_a_cluster_that_does_not_start_is_told_in_its_own_words(tmp_path: Path, path_with_java: str) -> None:
    manifest = tmp_path / "cluster.yaml"
    manifest.write_text("apiVersion: odradek.dev/v1\nkind: Nonsense\nmetadata: {name: demo}\n")
    result = run("-f", str(manifest), "--data-dir", str(tmp_path / "d"), "--output", "json", PATH=path_with_java)
    assert result.exit_code == 1
    assert "The cluster ended with exit code 1" in result.output
    assert str(manifest) in result.output
    with pytest.raises(ValueError, match="Expecting value"):
        json.loads(result.output)


def test_the_table_fits_a_terminal_of_eighty_columns() -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    Screen(console).carriers([CarrierRow("EV", "ExpressJet Airlines Inc.", 54_173, 51_356, 19.9554, 54_173)] * 10)
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("ExpressJet Airlines Inc.   ") == 10
    assert "Archived" in text
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
