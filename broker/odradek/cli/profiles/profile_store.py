"""The file of profiles: client properties by name, and the name of the current profile.

The file is `$XDG_CONFIG_HOME/odradek/profiles.yaml`, by default `~/.config/odradek/profiles.yaml`. Only its owner can
read it, because it may have passwords. It is replaced as a whole, so a reader never sees a part of it.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from odradek.base.errors import OdradekError

PROFILE_VARIABLE: Final = "ODRADEK_PROFILE"
"""Environment variable with the profile to use when none is given."""
FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
MAX_PROFILES_BYTES: Final = 1 << 20
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

Properties = Mapping[str, str]


class ProfileError(OdradekError):
    """A profile does not exist, or the file of profiles cannot be used. No message has a value of a property."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles:
    """The content of the file."""

    current: str | None = None
    """The profile of commands without `--profile`; None for none."""
    by_name: Mapping[str, Properties] = field(default_factory=dict)

    def get(self, name: str) -> Properties:
        """Return the properties of a profile. Raises `ProfileError` if it does not exist."""
        found = self.by_name.get(name)
        if found is None:
            raise ProfileError(
                f"There is no profile {name}. `odradek profile list` shows the profiles, and "
                f"`odradek profile create {name}` creates this one."
            )
        return found

    def with_profile(self, name: str, properties: Properties) -> Profiles:
        """Return a copy with a profile added or replaced. Raises `ProfileError` for an invalid name."""
        if _NAME.fullmatch(name) is None:
            raise ProfileError(
                f"{name!r} is not a name of a profile: use up to 100 letters, digits, dots, hyphens and underscores."
            )
        return replace(self, by_name={**self.by_name, name: dict(properties)})

    def without(self, name: str) -> Profiles:
        """Return a copy without a profile. Raises `ProfileError` if it does not exist."""
        self.get(name)
        left = {key: value for key, value in self.by_name.items() if key != name}
        return Profiles(current=None if self.current == name else self.current, by_name=left)

    def used(self, name: str | None) -> Profiles:
        """Return a copy with another current profile. Raises `ProfileError` if it does not exist."""
        if name is not None:
            self.get(name)
        return replace(self, current=name)


def profiles_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the file of profiles. It may not exist."""
    folder = environment.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder, "odradek", "profiles.yaml")


def is_private(path: Path) -> bool:
    """Whether only the owner can read the file. True if it does not exist. Raises `ProfileError`."""
    try:
        return not path.stat().st_mode & 0o077
    except FileNotFoundError:
        return True
    except OSError as error:
        raise ProfileError(f"{path} cannot be read: {error.strerror}.") from error


def read_profiles(path: Path) -> Profiles:
    """Return the content of the file; no profiles if it does not exist. Raises `ProfileError`."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_PROFILES_BYTES + 1)
    except FileNotFoundError:
        return Profiles()
    except OSError as error:
        raise ProfileError(f"{path} cannot be read: {error.strerror}.") from error
    if len(data) > MAX_PROFILES_BYTES:
        raise ProfileError(f"{path} has more than {MAX_PROFILES_BYTES} bytes: it is no file of profiles.")
    return _parsed(parse_yaml(data, where=str(path)), path)


def parse_yaml(data: bytes | str, *, where: str) -> object:
    """Parse YAML. Raises `ProfileError` without the text, because the text may have passwords."""
    # Imported here because most commands have no profile.
    import yaml

    try:
        return yaml.safe_load(data)
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f" in line {error.problem_mark.line + 1}"
        raise ProfileError(f"{where} is not YAML{line}: {error.problem}.") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise ProfileError(f"{where} is not text in UTF-8.") from None


def properties_of(value: object, *, where: str) -> dict[str, str]:
    """Return the properties of a mapping in YAML, where numbers and booleans need no quotes. Raises `ProfileError`."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ProfileError(f"{where} is not a mapping of client properties.")
    found = {}
    for key, one in value.items():
        if not isinstance(key, str) or isinstance(one, dict | list) or one is None:
            raise ProfileError(f"{where}: the property {key} does not have one value.")
        found[key] = str(one).lower() if isinstance(one, bool) else str(one)
    return found


def _parsed(document: object, path: Path) -> Profiles:
    content = {} if document is None else document
    if not isinstance(content, dict) or content.keys() - {"current", "profiles"}:
        raise ProfileError(f"{path} is not a file of profiles: its fields are current and profiles.")
    current, profiles = content.get("current"), content.get("profiles") or {}
    if not isinstance(profiles, dict) or not (current is None or isinstance(current, str)):
        raise ProfileError(f"{path} is not a file of profiles: current is a name, and profiles is a mapping.")
    found = Profiles(current=current)
    for name, properties in profiles.items():
        where = f"The profile {name} in {path}"
        found = found.with_profile(str(name), properties_of(properties, where=where))
    return found


def write_profiles(path: Path, profiles: Profiles) -> None:
    """Replace the file, readable only by its owner. Raises `ProfileError`."""
    import yaml

    document = {"current": profiles.current, "profiles": {name: dict(one) for name, one in profiles.by_name.items()}}
    # Other characters than ASCII are escaped: PyYAML would not read all of them back unchanged.
    text = yaml.safe_dump(document, sort_keys=False)
    try:
        path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        # mkstemp creates the file with the mode 0600.
        descriptor, temporary = tempfile.mkstemp(prefix=".profiles-", dir=path.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ProfileError(f"{path} cannot be written: {error.strerror}.") from error
