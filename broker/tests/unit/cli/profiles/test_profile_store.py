"""The file of profiles."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cli.profiles.hidden_values import HIDDEN, with_kept_secrets, without_secrets
from odradek.cli.profiles.profile_store import (
    ProfileError,
    Profiles,
    is_private,
    profiles_path,
    read_profiles,
    write_profiles,
)


def test_the_path() -> None:
    assert profiles_path({"XDG_CONFIG_HOME": "/x"}) == Path("/x/odradek/profiles.yaml")
    assert profiles_path({}) == Path.home() / ".config/odradek/profiles.yaml"


NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,10}", fullmatch=True)


@given(st.dictionaries(NAMES, st.dictionaries(NAMES, st.text(max_size=10), max_size=3), max_size=3))
def test_what_was_written_is_read(tmp_path_factory: pytest.TempPathFactory, by_name: dict[str, dict[str, str]]) -> None:
    path = tmp_path_factory.mktemp("config") / "odradek" / "profiles.yaml"
    wanted = Profiles(current=next(iter(by_name), None), by_name=by_name)
    write_profiles(path, wanted)
    assert read_profiles(path) == wanted
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert is_private(path)
    assert [each.name for each in path.parent.iterdir()] == ["profiles.yaml"]


def test_a_file_that_a_person_wrote(tmp_path: Path) -> None:
    path = tmp_path / "profiles.yaml"
    assert read_profiles(path) == Profiles()
    path.write_text("profiles:\n  a: {linger.ms: 5, enable.idempotence: true, client.id: x}\n  b:\n")
    path.chmod(0o644)
    assert read_profiles(path).by_name["a"] == {"linger.ms": "5", "enable.idempotence": "true", "client.id": "x"}
    assert read_profiles(path).by_name["b"] == {}
    assert not is_private(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: [hunter2", "is not YAML in line 1"),
        ("- hunter2", "its fields are current and profiles"),
        ("other: hunter2", "its fields are current and profiles"),
        ("profiles: [hunter2]", "profiles is a mapping"),
        ("profiles: {a: hunter2}", "The profile a in .* is not a mapping"),
        ("profiles: {a: {b: [hunter2]}}", "the property b does not have one value"),
        ("profiles: {a/b: {}}", "'a/b' is not a name of a profile"),
    ],
)
def test_a_wrong_file_is_refused_without_its_content(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "profiles.yaml"
    path.write_text(content)
    with pytest.raises(ProfileError, match=message) as raised:
        read_profiles(path)
    assert "hunter2" not in str(raised.value)


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    path = tmp_path / "profiles.yaml"
    path.mkdir()
    with pytest.raises(ProfileError, match="cannot be read: Is a directory"):
        read_profiles(path)
    with pytest.raises(ProfileError, match="cannot be written"):
        write_profiles(path, Profiles())
    other = tmp_path / "binary"
    other.write_bytes(b"\xff")
    with pytest.raises(ProfileError, match="is not text in UTF-8"):
        read_profiles(other)


def test_changes() -> None:
    profiles = Profiles().with_profile("a", {"x": "1"}).with_profile("b", {}).used("a")
    assert (profiles.current, profiles.get("a")) == ("a", {"x": "1"})
    assert profiles.without("a") == Profiles(by_name={"b": {}})
    assert profiles.without("b").current == "a"
    for wrong in (lambda: profiles.get("c"), lambda: profiles.without("c"), lambda: profiles.used("c")):
        with pytest.raises(ProfileError, match="There is no profile c"):
            wrong()


def test_secrets_are_hidden_and_kept_when_they_are_edited() -> None:
    properties = {"client.id": "x", "SASL_JAAS_CONFIG": "hunter2", "ssl.key.password": "hunter2", "sasl.pasword": "h"}
    shown = without_secrets(properties)
    assert shown == {"client.id": "x", "SASL_JAAS_CONFIG": HIDDEN, "ssl.key.password": HIDDEN, "sasl.pasword": HIDDEN}
    edited = {"client.id": "y", "SASL_JAAS_CONFIG": HIDDEN, "ssl.key.password": "new"}
    assert with_kept_secrets(edited, properties) == {
        "client.id": "y",
        "SASL_JAAS_CONFIG": "hunter2",
        "ssl.key.password": "new",
    }
