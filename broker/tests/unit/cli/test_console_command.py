"""`odradek console`: wrong settings are reported before it listens."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from odradek.cli.main import cli


@pytest.mark.parametrize(
    ("properties", "arguments", "text"),
    [
        ("security.protocol=SASL_SSL\nsasl.jaas.config=x;", [], "sasl.jaas.config is not allowed for the console"),
        ("security.protocol=SASL_PLAINTEXT", ["--host", "0.0.0.0"], "set --tls-certificate"),
        ("", ["--tls-key", "key.pem"], "has no certificate"),
        ("", ["--bootstrap-server", "nowhere"], "must be a list of host:port"),
        ("", ["--tls-certificate", "missing.pem"], "missing.pem cannot be used"),
    ],
)
def test_wrong_settings(tmp_path: Path, properties: str, arguments: list[str], text: str) -> None:
    file = tmp_path / "console.properties"
    file.write_text(properties)
    result = CliRunner().invoke(cli, ["console", "--port", "0", "--command-config", str(file), *arguments])
    assert result.exit_code == 1
    assert text in result.output
