"""Tests which package settings of a machine builds get, and that the script of a build applies them correctly."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest
from images.builder.machine import Machine, apt_settings, archive, codename, pip_settings, secret_files

ROOT = Path(__file__).resolve().parents[2]
MARK = "mark-1234"

NOTHING = Machine(pip={}, apt=(), sources={}, environment={}, codename="", certificates=b"")
FULL = Machine(
    pip={"index-url": "https://user:word@mirror.example/simple", "cert": "/etc/own.pem", "timeout": "60"},
    apt=('Acquire::http::Proxy "http://proxy.example:3128";',),
    sources={"sources.list.d/own.sources": b"Types: deb\n", "auth.conf.d/own.conf": b"machine x login y\n"},
    environment={"https_proxy": "http://it's.example"},
    codename="bookworm",
    certificates=b"-----BEGIN CERTIFICATE-----\n",
)


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ("", {}),
        ("global.index-url='https://a.example/simple'\n", {"index-url": "https://a.example/simple"}),
        ("global.timeout='10'\n:env:.timeout='20'\n", {"timeout": "20"}),
        (":env:.timeout='20'\nglobal.timeout='10'\n", {"timeout": "20"}),
        ("install.retries='3'\nglobal.retries='1'\n", {"retries": "3"}),
        ("global.find-links='/opt/wheels'\nglobal.cache-dir='/c'\ninstall.user='true'\n", {}),
        ("global.extra-index-url='\\nhttps://a\\nhttps://b'\n", {"extra-index-url": " https://a https://b"}),
        ("download.proxy='http://p'\n", {}),
        ("global.cert='/c.pem'\nnonsense\n", {"cert": "/c.pem"}),
    ],
)
def test_pips_settings(listed: str, expected: dict[str, str]) -> None:
    assert pip_settings(listed) == expected


def test_apts_settings_are_those_of_the_network() -> None:
    dumped = (
        'APT "";\nDPkg::Post-Invoke:: "rm -rf /";\nAcquire "";\nAcquire::Check-Date "false";\n'
        'Acquire::http::Proxy "http://p:1";\nAcquire::IndexTargets::deb::X "y";\nAcquire::http "";\n'
        'Dir::Etc "etc/apt";\n'
    )
    assert apt_settings(dumped) == ('Acquire::Check-Date "false";', 'Acquire::http::Proxy "http://p:1";')


@pytest.mark.parametrize(
    ("text", "expected"),
    [("ID=debian\nVERSION_CODENAME=bookworm\n", "bookworm"), ('VERSION_CODENAME="sid"\n', "sid"), ("ID=alpine\n", "")],
)
def test_the_codename(text: str, expected: str) -> None:
    assert codename(text) == expected


def test_every_file_that_pip_and_apt_read_carries_the_mark() -> None:
    files = secret_files(FULL, MARK)
    for name in ("pip.conf", "apt.conf", "environment", "certificates.pem"):
        assert MARK.encode() in files[name]
    assert b"cert = /run/machine/certificates.pem" in files["pip.conf"]
    assert b"index-url = https://user:word@mirror.example/simple" in files["pip.conf"]
    assert b'Dir::Etc "/run/machine/apt";' in files["apt.conf"]
    assert files["apt/sources.list.d/own.sources"] == b"Types: deb\n"


def test_a_machine_without_settings_hands_in_none() -> None:
    files = secret_files(NOTHING, MARK)
    assert set(files) == {"pip.conf", "apt.conf", "environment"}
    assert b"Dir::Etc" not in files["apt.conf"]
    assert b"CERT" not in files["environment"]


def test_the_archive_holds_the_files() -> None:
    files = secret_files(FULL, MARK)
    with tarfile.open(fileobj=io.BytesIO(archive(files))) as tar:
        found = {}
        for entry in tar:
            content = tar.extractfile(entry)
            assert content is not None
            found[entry.name] = content.read()
    assert found == files


def with_machine(tmp_path: Path, machine: Machine | None) -> dict[str, str]:
    """The environment in which the script runs a command."""
    secret, room = tmp_path / "secret", tmp_path / "room"
    room.mkdir()
    if machine is not None:
        secret.write_bytes(archive(secret_files(machine, MARK)))
    answer = subprocess.run(
        [ROOT / "images/common/with-machine", "env", "-0"],
        env={"PATH": os.environ["PATH"], "MACHINE_SECRET": str(secret), "MACHINE_ROOM": str(room)},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(line.split("=", 1) for line in answer.stdout.split("\0") if line)


def host_codename() -> str:
    return codename(Path("/etc/os-release").read_text(encoding="utf-8"))


def test_the_script_sets_the_environment(tmp_path: Path) -> None:
    sources_fit = Machine(
        pip=FULL.pip,
        apt=FULL.apt,
        sources=FULL.sources,
        environment=FULL.environment,
        codename=host_codename(),
        certificates=FULL.certificates,
    )
    found = with_machine(tmp_path, sources_fit)
    assert found["PIP_CONFIG_FILE"] == "/run/machine/pip.conf"
    assert found["APT_CONFIG"] == "/run/machine/apt.conf"
    assert found["https_proxy"] == "http://it's.example"
    assert (tmp_path / "room/apt/auth.conf.d/own.conf").read_bytes() == b"machine x login y\n"


def test_sources_of_another_release_are_left_out(tmp_path: Path) -> None:
    other = Machine(pip={}, apt=(), sources=FULL.sources, environment={}, codename="other", certificates=b"")
    found = with_machine(tmp_path, other)
    assert "APT_CONFIG" not in found
    assert found["PIP_CONFIG_FILE"] == "/run/machine/pip.conf"


def test_without_a_secret_nothing_is_set(tmp_path: Path) -> None:
    assert "PIP_CONFIG_FILE" not in with_machine(tmp_path, None)
