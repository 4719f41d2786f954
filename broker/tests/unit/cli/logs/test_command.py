"""The group `odradek log`: help texts and wrong arguments."""

from __future__ import annotations

import subprocess
import sys
from io import StringIO

import pytest
from click.testing import CliRunner

from odradek.cli.logs.command import log, progress_bar


@pytest.mark.parametrize("name", ["dump", "verify", "compact"])
def test_the_help_of_every_command_has_examples(name: str) -> None:
    result = CliRunner().invoke(log, [name, "--help"])
    assert result.exit_code == 0
    assert result.output.count(f"  odradek log {name} ") >= 2


def test_help_loads_no_tool() -> None:
    program = (
        "import sys\n"
        "from odradek.cli.logs.command import log\n"
        "try: log.main(['verify', '--help'], prog_name='x')\n"
        "except SystemExit: pass\n"
        "heavy = ('numpy', 'rich', 'odradek.log', 'odradek.records')\n"
        "print('LOADED', [name for name in heavy if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[-1] == "LOADED []"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["dump"], "Missing argument 'FILE|DIRECTORY…'"),
        (["dump", "x", "--value-decoder", "avro"], "'avro' is not one of"),
        (["dump", "x", "--max-bytes", "0"], "0 is not in the range x>=1"),
        (["verify"], "Missing argument 'DIRECTORY…'"),
        (["verify", "x", "--jobs", "0"], "0 is not in the range x>=1"),
        (["compact"], "Missing argument 'DIRECTORY…'"),
        (["compact", "x", "--dirty-from", "-1"], "-1 is not in the range x>=0"),
    ],
)
def test_wrong_usage(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(log, arguments)
    assert result.exit_code == 2
    assert words in result.stderr


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_a_progress_bar_is_shown_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, shown in ((Terminal(), True), (StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress_bar("Checking") as progress:
            progress(1, 2)
            progress(2, 2)
        assert ("Checking" in stream.getvalue()) is shown
