"""`odradek profile`, and `--profile` of the commands that connect."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from odradek.cli.main import cli
from odradek.cli.shared import client_settings, connection_options

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="hunter2";'


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the configuration, without variables of the person who runs the tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("ODRADEK_PROFILE", "ODRADEK_BOOTSTRAP_SERVER", "ODRADEK_COMMAND_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def odradek(*arguments: str, code: int = 0, **options: Any) -> str:
    result: Result = CliRunner().invoke(cli, arguments, **options)
    assert result.exit_code == code, result.output
    return result.output


@click.command()
@connection_options
def connect(bootstrap: str) -> None:
    settings = client_settings(bootstrap, {}, **{"linger.ms": 5})
    click.echo(f"{','.join(settings.bootstrap_servers)} {settings.client_id} {settings.linger_ms}")


def connected(*arguments: str, **env: str) -> str:
    result = CliRunner().invoke(connect, arguments, env=env)
    assert result.exit_code == 0, result.output
    return result.output


def test_profiles_are_created_chosen_shown_changed_and_deleted(config: Path) -> None:
    secret = config / "client.properties"
    secret.write_text(f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config={JAAS}\nclient.id=file\n")
    made = odradek("profile", "create", "prod", "-b", "k:1", "--from-file", str(secret), "-X", "client.id=x", "--use")
    assert made == "Profile prod was created and is the current one.\n"
    odradek("profile", "create", "local", "-b", "127.0.0.1:9092")
    assert "already exists: use --replace" in odradek("profile", "create", "local", code=1)
    shown = json.loads(odradek("profile", "show", "-o", "json"))
    assert shown["name"] == "prod"
    assert shown["properties"]["client.id"] == "x"
    assert shown["properties"]["sasl.jaas.config"] == "********"
    assert "hunter2" not in odradek("profile", "show", "prod") + odradek("profile", "list")
    assert json.loads(odradek("profile", "list", "-o", "json")) == [
        {"name": "local", "current": False, "bootstrap_servers": "127.0.0.1:9092"},
        {"name": "prod", "current": True, "bootstrap_servers": "k:1"},
    ]
    odradek("profile", "edit", "prod", "-X", "linger.ms=7", "--remove", "client.id")
    names = json.loads(odradek("profile", "show", "-o", "json"))["properties"].keys()
    assert {"linger.ms", "sasl.jaas.config"} <= names
    assert "client.id" not in names
    assert "has no property client.id" in odradek("profile", "edit", "--remove", "client.id", code=1)
    assert "linger.ms='x' is not allowed" in odradek("profile", "edit", "prod", "-X", "linger.ms=x", code=1)
    odradek("profile", "use", "local")
    assert odradek("profile", "show").startswith("Profile local\n")
    assert odradek("profile", "delete", "local", "prod") == "Deleted: local, prod.\n"
    assert odradek("profile", "list") == "There are no profiles.\n"
    assert "There is no current profile" in odradek("profile", "show", code=1)
    assert "There is no profile prod" in odradek("profile", "use", "prod", code=1)
    odradek("profile", "use", code=2)


def test_changes_are_printed_as_json() -> None:
    def value(*arguments: str) -> object:
        return json.loads(odradek("profile", *arguments, "-o", "json"))

    assert value("create", "a", "--use") == {"name": "a", "created": True, "current": True}
    assert value("create", "b") == {"name": "b", "created": True, "current": False}
    assert value("use", "b") == {"current": "b"}
    assert value("use", "--none") == {"current": None}
    assert value("edit", "a", "-X", "client.id=x") == {"name": "a", "changed": True}
    assert value("edit", "a", "-X", "client.id=x") == {"name": "a", "changed": False}
    assert value("delete", "a", "b") == {"deleted": ["a", "b"]}


def test_an_editor_sees_no_secret_and_keeps_it(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odradek("profile", "create", "prod", "-X", f"sasl.jaas.config={JAAS}", "-X", "client.id=old")
    editor = config / "editor"
    editor.write_text(f'#!/bin/sh\ncp "$1" {config}/seen\nsed -i s/old/new/ "$1"\ntouch -d "1 hour" "$1"\n')
    editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("VISUAL", str(editor))
    assert odradek("profile", "edit", "prod") == "Profile prod was changed.\n"
    assert "hunter2" not in (config / "seen").read_text()
    content = (config / "odradek" / "profiles.yaml").read_text()
    assert "hunter2" in content
    assert "client.id: new" in content
    monkeypatch.setenv("VISUAL", "true")
    assert odradek("profile", "edit", "prod") == "Nothing was changed.\n"


def test_options_precede_the_file_and_the_file_precedes_the_profile(config: Path) -> None:
    odradek("profile", "create", "a", "-b", "a:1", "-X", "client.id=a", "-X", "linger.ms=1")
    odradek("profile", "create", "b", "-b", "b:1", "--use")
    assert connected() == "b:1 odradek 5\n"
    assert connected("--profile", "a") == connected(ODRADEK_PROFILE="a") == "a:1 a 1\n"
    assert connected("--profile", "a", "-b", "x:1") == "x:1 a 1\n"
    assert connected(ODRADEK_BOOTSTRAP_SERVER="x:1") == "x:1 odradek 5\n"
    assert connected("--profile", "a", ODRADEK_BOOTSTRAP_SERVER="x:1") == "a:1 a 1\n"
    file = config / "client.properties"
    file.write_text("client.id=file\n")
    assert connected("--command-config", str(file)) == "127.0.0.1:9092 file 5\n"
    assert connected("--command-config", str(file), "--profile", "a") == "a:1 file 1\n"
    assert "There is no profile c" in CliRunner().invoke(connect, ["--profile", "c"]).output


def test_a_file_that_others_can_read_is_reported() -> None:
    odradek("profile", "create", "a", "-b", "a:1", "--use")
    path = Path(os.environ["XDG_CONFIG_HOME"], "odradek", "profiles.yaml")
    path.chmod(0o640)
    assert "Warning: other users can read" in connected()
    odradek("profile", "edit", "a", "-X", "client.id=x")
    assert "Warning" not in connected()


def test_a_current_profile_that_is_gone_is_an_error(config: Path) -> None:
    (config / "odradek").mkdir()
    (config / "odradek" / "profiles.yaml").write_text("current: gone\n")
    (config / "odradek" / "profiles.yaml").chmod(0o600)
    result = CliRunner().invoke(cli, ["topic", "list"])
    assert (result.exit_code, "There is no profile gone" in result.output) == (1, True)
