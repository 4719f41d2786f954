"""Tests that the archives from which Spark's workers import contain byte code, and that this code is imported."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "images/spark/compile_zips.py"


def test_modules_are_imported_from_byte_code(tmp_path: Path) -> None:
    archive = tmp_path / "lib/kit.zip"
    archive.parent.mkdir()
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("kit/__init__.py", "")
        made.writestr("kit/part.py", "VALUE = 7\n")
        made.writestr("kit/tests/test_part.py", "1 is 1\n")
        made.writestr("kit/data.txt", "text")
    subprocess.run([sys.executable, SCRIPT, archive.parent], check=True)
    with zipfile.ZipFile(archive) as found:
        files = {name for name in found.namelist() if not name.endswith("/")}
        assert str(tmp_path) not in found.read("kit/part.pyc").decode("latin-1")
        assert files == {"kit/__init__.py", "kit/__init__.pyc", "kit/part.py", "kit/part.pyc", "kit/data.txt"}
    answer = subprocess.run(
        [sys.executable, "-c", "import kit.part; print(kit.part.VALUE, kit.part.__file__)"],
        env={"PYTHONPATH": str(archive)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.split() == ["7", str(archive / "kit/part.pyc")]
