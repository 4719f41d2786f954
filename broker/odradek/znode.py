"""Names of znodes and typed access to the JSON in them. Errors name the znode and the key.

The modules that know a layout use it, such as `zk/layout` and `security/acls/nodes`. Missing or mistyped values
raise `LayoutError`; unknown keys are ignored, because newer versions add keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final, cast
from urllib.parse import quote

from odradek.base.errors import OdradekError


def is_node_name(text: str) -> bool:
    """Return whether the text is a valid name of a znode, so that a path with it cannot leave the parent.

    https://zookeeper.apache.org/doc/current/zookeeperProgrammers.html#ch_zkDataModel
    """
    return text not in ("", ".", "..") and _FORBIDDEN_IN_NAMES.search(text) is None


_FORBIDDEN_IN_NAMES: Final = re.compile("[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")
"""ZooKeeper compares UTF-16 units, so it also refuses what Java writes as surrogates: all characters above U+FFFF."""


def url_encoded(name: str) -> str:
    """Return a name as Kafka's `Sanitizer` writes names of users and clients. `unquote_plus` is the inverse."""
    return quote(name, safe="", errors="replace").replace("~", "%7E")


class LayoutError(OdradekError):
    """The content of a znode is invalid. The message starts with the path."""

    def __init__(self, path: str, reason: str) -> None:
        """`reason` describes what is invalid in the content of `path`."""
        super().__init__(f"{path}: {reason}")
        self.path: Final = path


class ZnodeJson:
    """A parsed JSON object with the path of its znode."""

    __slots__ = ("_path", "_values")

    def __init__(self, path: str, data: bytes | None) -> None:
        """Parse the data. Raises `LayoutError` unless it is a JSON object."""
        self._path = path
        try:
            values = json.loads(data or b"")
        except (ValueError, RecursionError) as error:
            raise LayoutError(path, f"not JSON: {(data or b'')[:200]!r}") from error
        if not isinstance(values, dict):
            raise LayoutError(path, f"expected a JSON object, found {values!r:.200}")
        self._values = cast("dict[str, object]", values)

    def error(self, name: str, wanted: str) -> LayoutError:
        """Return an error about a key, for the caller to raise."""
        return LayoutError(self._path, f"{name} must be {wanted}, found {self._values.get(name)!r:.200}")

    def has(self, name: str) -> bool:
        """Whether the key exists and is not null."""
        return self._values.get(name) is not None

    def integer(self, name: str, default: int | None = None) -> int:
        """Return a number. It may be in a string, as old versions wrote it."""
        value = self._values.get(name)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise self.error(name, "a number")
        try:
            return int(value)
        except ValueError as error:
            raise self.error(name, "a number") from error

    def text(self, name: str) -> str:
        """Return a string."""
        value = self._values.get(name)
        if not isinstance(value, str):
            raise self.error(name, "a string")
        return value

    def texts(self, name: str) -> dict[str, str]:
        """Return an object whose values are strings."""
        value = self._values.get(name)
        if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
            raise self.error(name, "an object of strings")
        return cast("dict[str, str]", value)

    def text_list(self, name: str) -> list[str]:
        """Return a list of strings."""
        value = self._values.get(name)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.error(name, "a list of strings")
        return cast("list[str]", value)

    def integers(self, name: str) -> tuple[int, ...]:
        """Return a list of integers."""
        return self._integers(name, self._values.get(name))

    def _integers(self, name: str, value: object) -> tuple[int, ...]:
        if not isinstance(value, list) or not all(type(item) is int for item in value):
            raise self.error(name, "a list of whole numbers")
        return tuple(value)

    def integer_lists(self, name: str) -> dict[int, tuple[int, ...]]:
        """Return a mapping from partition numbers to broker ids; empty if the key is missing."""
        value = self._values.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict) or not all(key.isdecimal() and len(key) <= 10 for key in value):
            raise self.error(name, "an object of partition numbers")
        return {int(key): self._integers(name, item) for key, item in value.items()}

    def integer_map(self, name: str) -> dict[str, int]:
        """Return an object whose values are integers."""
        value = self._values.get(name)
        if not isinstance(value, dict) or not all(type(item) is int for item in value.values()):
            raise self.error(name, "an object of whole numbers")
        return cast("dict[str, int]", value)

    def objects(self, name: str) -> list[ZnodeJson]:
        """Return a list of objects."""
        value = self._values.get(name)
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.error(name, "a list of objects")
        return [self._child(item) for item in value]

    def object_map(self, name: str) -> dict[str, ZnodeJson]:
        """Return an object of objects; empty if the key is missing."""
        value = self._values.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict) or not all(isinstance(item, dict) for item in value.values()):
            raise self.error(name, "an object of objects")
        return {key: self._child(item) for key, item in value.items()}

    def keys(self) -> Iterable[str]:
        """Return all keys."""
        return self._values.keys()

    def _child(self, values: dict[str, object]) -> ZnodeJson:
        child = object.__new__(ZnodeJson)
        child._path, child._values = self._path, values
        return child
