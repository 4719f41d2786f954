"""The termination message is written to the file that Kubernetes reads, and nowhere else."""

from __future__ import annotations

from pathlib import Path

from odradek.base.system_ports import MAX_TERMINATION_CHARACTERS, report_termination


def test_the_reason_is_written_where_kubernetes_made_the_file(tmp_path: Path) -> None:
    path = tmp_path / "termination-log"
    report_termination("nobody asked", path)
    assert not path.exists(), "outside a container the file does not exist and is not created"
    path.touch()
    report_termination("The broker cannot start: " + "x" * 5_000, path)
    assert path.read_text().startswith("The broker cannot start: xxx")
    assert len(path.read_text()) == MAX_TERMINATION_CHARACTERS
