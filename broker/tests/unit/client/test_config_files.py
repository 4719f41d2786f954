"""Files of client properties: paths, profiles, and what is wrong with a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.base.errors import ConfigError
from odradek.client.config_files import MAX_FILE_BYTES, config_path, read_config_file


def test_a_path_is_a_path_and_a_word_is_a_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    home = {"XDG_CONFIG_HOME": "/conf"}
    assert config_path("prod", home) == Path("/conf/odradek/prod.properties")
    assert config_path("prod", {}) == Path.home() / ".config/odradek/prod.properties"
    for path in ("./prod", "client.properties", "/etc/client", "a/b"):
        assert config_path(path, home) == Path(path)
    Path("prod").write_text("")
    assert config_path("prod", home) == Path("prod"), "a file of that name comes first"


def test_the_properties_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    file = tmp_path / "odradek" / "prod.properties"
    file.parent.mkdir()
    file.write_text("# a comment\nsecurity.protocol = SSL  \nsasl.jaas.config=a \\\n  b\n")
    expected = {"security.protocol": "SSL", "sasl.jaas.config": "a b"}
    assert read_config_file("prod", option="--command-config") == expected
    assert read_config_file(str(file), option="configFile") == expected


def test_errors_name_the_option_and_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(ConfigError) as raised:
        read_config_file("prod", option="--command-config")
    expected = f"--command-config prod: the profile {tmp_path}/odradek/prod.properties cannot be read"
    assert str(raised.value) == f"{expected}: No such file or directory"
    binary, long = tmp_path / "a.bin", tmp_path / "b.bin"
    binary.write_bytes(b"\xff\xfe")
    long.write_bytes(b"a" * (MAX_FILE_BYTES + 1))
    with pytest.raises(ConfigError, match=f"configFile {binary} is not a text in UTF-8"):
        read_config_file(str(binary), option="configFile")
    with pytest.raises(ConfigError, match=f"configFile {long} is longer than 1048576 bytes"):
        read_config_file(str(long), option="configFile")
