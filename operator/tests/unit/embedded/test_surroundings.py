"""Checks of Java, jars, ports and system errors. Each message says what is wrong and what to do."""

from __future__ import annotations

import errno
import socket
from pathlib import Path

import pytest

from odradek.testing.free_ports import RANGE_VARIABLE, free_ports
from odradek_operator.embedded.child import system_error
from odradek_operator.embedded.ports import PortUse, check_ports, is_free
from odradek_operator.ensemble.java import java_command, java_version, zookeeper_class_path
from odradek_operator.errors import EmbeddedError


@pytest.mark.parametrize(
    ("banner", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ("bash: java: not found", None),
    ],
)
def test_the_version_of_java(banner: str, version: int | None) -> None:
    assert java_version(banner) == version


def fake_java(home: Path, banner: str) -> None:
    (home / "bin").mkdir()
    java = home / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho '{banner}' >&2\n")
    java.chmod(0o755)


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, 'openjdk version "17.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java_command() == str(tmp_path / "bin" / "java")


@pytest.mark.parametrize(
    ("banner", "words"), [('java version "1.8.0_1"', "is Java 8:"), ("segmentation fault", "is an unknown version:")]
)
def test_an_old_java_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, banner: str, words: str) -> None:
    fake_java(tmp_path, banner)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EmbeddedError, match="Java 17 or newer is needed") as raised:
        java_command()
    assert words in str(raised.value)


def test_a_missing_java_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EmbeddedError, match="no `java` is on the PATH"):
        java_command()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EmbeddedError, match=r"The Java of JAVA_HOME=.* cannot be executed"):
        java_command()


def test_the_class_path_has_what_a_server_needs_and_no_more(tmp_path: Path) -> None:
    names = [
        "zookeeper-3.9.5.jar",
        "zookeeper-jute-3.9.5.jar",
        "slf4j-api-2.0.jar",
        "netty-all-4.jar",
        "spark-core.jar",
    ]
    for name in names:
        (tmp_path / name).touch()
    found = {Path(entry).name for entry in zookeeper_class_path(tmp_path).split(":")}
    assert found == set(names) - {"spark-core.jar"}


def test_missing_jars_are_told(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedError, match=r"contains no zookeeper-\*\.jar"):
        zookeeper_class_path(tmp_path)
    with pytest.raises(EmbeddedError, match="does not exist: see --zookeeper-jars"):
        zookeeper_class_path(tmp_path / "none")


def test_a_port_in_use_is_told_with_its_user_and_option() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert not is_free(port)
        with pytest.raises(EmbeddedError) as raised:
            check_ports([PortUse(port, "broker 1", "--base-port")])
    assert str(raised.value) == (
        f"Port {port} (for broker 1) of 127.0.0.1 is in use: stop what listens there, or change --base-port."
    )


def test_ports_that_collide_or_do_not_exist_are_told() -> None:
    with pytest.raises(EmbeddedError, match="broker 1 and ZooKeeper both need port 9093: change --base-port"):
        check_ports([PortUse(9093, "ZooKeeper", "--zookeeper-port"), PortUse(9093, "broker 1", "--base-port")])
    with pytest.raises(EmbeddedError, match="broker 1 would need port 65536, which does not exist"):
        check_ports([PortUse(65_536, "broker 1", "--base-port")])


def test_free_ports_are_different_and_free() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(map(is_free, ports))


def test_a_port_is_not_chosen_again_while_its_server_may_not_have_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RANGE_VARIABLE, "19000-19080")
    for _ in range(5):
        chosen = [port for _ in range(20) for port in free_ports(2)]
        assert len(set(chosen)) == 40


def test_ports_are_chosen_again_when_half_of_the_range_was_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RANGE_VARIABLE, "19000-19080")
    chosen = [port for _ in range(20) for port in free_ports(2, slots=3, stride=10)]
    assert len(chosen) == 40


def test_a_full_disk_is_called_so() -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "/data/x")
    assert system_error("The file cannot be written", full) == (
        "The file cannot be written: the disk is full (/data/x); free space, or choose another place with --data-dir."
    )
    assert system_error("It cannot be read", PermissionError(errno.EACCES, "Permission denied", "/a")) == (
        "It cannot be read: Permission denied (/a)."
    )
