"""Declares, parses and describes settings; `base/config` is built on it.

A settings class is a frozen dataclass whose fields are created by the functions below (`integer`, `text`, `words`,
...). The attribute is the name of the property with `_` instead of `.`. The metadata of the field has everything else
about the setting (bounds, description, whether it can change at run time), so that parsing, DescribeConfigs and the
reference documentation use one table.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, cast

from odradek.base.errors import ConfigError

_TRAILING_SPACE: Final = re.compile(r"(?<!\\)[ \t\f]+$", re.MULTILINE)
"""White space at the end of a line, except an escaped space."""

INT16_MAX: Final = 2**15 - 1
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


def parse_properties(text: str) -> dict[str, str]:
    """Return the properties of a file, in the syntax of Java. The last value of a repeated key applies.

    Unlike Java, it removes white space at the end of a line, as Kafka does later for most settings.
    Raises `ConfigError` for an invalid escape sequence.
    """
    # Imported here, because few processes read such files and the import takes 15 ms.
    import javaproperties

    try:
        return javaproperties.loads(_TRAILING_SPACE.sub("", text))
    except javaproperties.InvalidUEscapeError as error:
        raise ConfigError(f"the properties file has an invalid escape sequence {error.escape}") from error


class SettingType(Enum):
    """Type of a value, numbered as in the ConfigType field of DescribeConfigs (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_WHOLE: Final = (SettingType.INT, SettingType.SHORT, SettingType.LONG)


class Update(Enum):
    """How a setting of a broker can change (KIP-226)."""

    READ_ONLY = "read-only"
    """Only with a restart."""
    PER_BROKER = "per-broker"
    """At run time, per broker."""
    CLUSTER_WIDE = "cluster-wide"
    """At run time, per broker or as the default of all brokers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting: its allowed values and its description."""

    name: str
    """The property, with dots."""
    attribute: str
    kind: SettingType
    default: object
    documentation: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    form: str = ""
    """Regular expression that the whole text without white space must match; empty for none."""
    form_in_words: str = ""
    dynamic: Update = Update.READ_ONLY
    """Whether it can change at run time."""
    sensitive: bool = False
    """Never returned once set."""
    of_listener: bool = False
    """Whether a listener can have its own value: `listener.name.NAME.` precedes the property then."""
    broker: str = ""
    """For a setting of a topic: the broker attribute with its default."""
    splits: bool = False
    """The value is a comma-separated list although Kafka's type is STRING."""

    @property
    def allowed(self) -> str:
        """Description of the allowed values, for error messages and documentation."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.kind is SettingType.BOOLEAN:
            return "true or false"
        if self.kind in (*_WHOLE, SettingType.DOUBLE):
            what = "a number" if self.kind is SettingType.DOUBLE else "a whole number"
            return f"{what} from {_bound(self.low)} to {_bound(self.high)}"
        if self.form:
            return self.form_in_words
        return "a comma-separated list" if self._is_list else "text"

    @property
    def _is_list(self) -> bool:
        return self.kind is SettingType.LIST or self.splits

    def parse(self, value: str) -> object:
        """Return the typed value. Raises a `ConfigError` with the key, the value and what is allowed."""
        text_value = value.strip()
        if self.form and re.fullmatch(self.form, re.sub(r"\s", "", value)) is None:
            raise self._refusal(value)
        try:
            parsed = self._convert(text_value)
        except ValueError:
            raise self._refusal(value) from None
        self._check(parsed, value)
        return parsed

    def _convert(self, value: str) -> object:
        if self.kind is SettingType.BOOLEAN:
            if value.lower() not in ("true", "false"):
                raise ValueError(value)
            return value.lower() == "true"
        if self.kind in _WHOLE:
            return int(value)
        if self.kind is SettingType.DOUBLE:
            return float(value)
        if self._is_list:
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    def _check(self, parsed: object, value: str) -> None:
        if isinstance(parsed, int | float):
            low, high = self.low, self.high
            if (low is not None and parsed < low) or (high is not None and parsed > high):
                raise self._refusal(value)
        if self.choices:
            for part in parsed if isinstance(parsed, tuple) else (parsed,):
                if part not in self.choices:
                    raise self._refusal(value)

    def _refusal(self, value: str) -> ConfigError:
        return ConfigError(f"{self.name}={value!r} is not allowed: it must be {self.allowed}")

    def render(self, value: object) -> str | None:
        """Return the value as text, as in a properties file or DescribeConfigs; None stays None."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(str(part) for part in value)
        return str(value)

    def shown(self, value: object) -> str | None:
        """Return the value as text for people and clients; None if it is secret."""
        return None if self.sensitive else self.render(value)


def check_values(holder: object, settings: Mapping[str, Setting]) -> None:
    """Check the value of each setting that `holder` has an attribute for; None is not checked. Raises `ConfigError`."""
    for setting in settings.values():
        value = getattr(holder, setting.attribute)
        if value is not None:
            setting.parse(setting.render(value) or "")


def parse_known(
    properties: Mapping[str, str], settings: Mapping[str, Setting], aliases: Mapping[str, str], *, whose: str
) -> dict[str, Any]:
    """Return the values of properties by attribute. `aliases` are other names of settings.

    Raises `ConfigError` for an invalid value, or for a name that is not a setting of `whose`, with a suggestion.
    """
    values = {}
    for key, value in properties.items():
        name = aliases.get(key.strip(), key.strip())
        setting = settings.get(name)
        if setting is None:
            close = difflib.get_close_matches(name, settings, n=1)
            suggestion = f"; did you mean {close[0]}?" if close else ""
            raise ConfigError(f"{key} is not a setting of {whose}{suggestion}")
        values[setting.attribute] = setting.parse(str(value))
    return values


def _bound(number: float | None) -> str:
    return "any" if number is None else str(number)


def _declare(kind: SettingType, default: object, doc: str, options: Mapping[str, object]) -> Any:
    # The return type is Any so that a field can be annotated with its type, as with dataclasses.field.
    metadata = {"kind": kind, "doc": doc, **options}
    return dataclasses.field(default=cast(Any, default), repr=not options.get("sensitive"), metadata=metadata)


def integer(default: int | None, doc: str, *, low: int = 0, high: int = INT32_MAX, **options: object) -> Any:
    """A 32-bit integer."""
    return _declare(SettingType.INT, default, doc, {"low": low, "high": high, **options})


def short(default: int, doc: str, *, low: int = 0, high: int = INT16_MAX, **options: object) -> Any:
    """A 16-bit integer."""
    return _declare(SettingType.SHORT, default, doc, {"low": low, "high": high, **options})


def long(default: int | None, doc: str, *, low: int = 0, high: int = INT64_MAX, **options: object) -> Any:
    """A 64-bit integer."""
    return _declare(SettingType.LONG, default, doc, {"low": low, "high": high, **options})


def real(default: float, doc: str, *, low: float = 0.0, high: float | None = None, **options: object) -> Any:
    """A floating-point number."""
    return _declare(SettingType.DOUBLE, default, doc, {"low": low, "high": high, **options})


def boolean(default: bool, doc: str, **options: object) -> Any:
    """True or false."""
    return _declare(SettingType.BOOLEAN, default, doc, options)


def text(default: str | None, doc: str, **options: object) -> Any:
    """Any text."""
    return _declare(SettingType.STRING, default, doc, options)


def secret(doc: str, **options: object) -> Any:
    """Text that is never returned once it is set; unset by default."""
    return _declare(SettingType.PASSWORD, None, doc, {"sensitive": True, **options})


def words(default: tuple[str, ...], doc: str, **options: object) -> Any:
    """A comma-separated list."""
    return _declare(SettingType.LIST, default, doc, options)


def parts(default: tuple[str, ...], doc: str, **options: object) -> Any:
    """A comma-separated list whose type in Kafka is STRING."""
    return _declare(SettingType.STRING, default, doc, {"splits": True, **options})


def replicas(doc: str) -> Any:
    """Replicas as `partition:broker`, or `*` for all; none by default (KIP-73)."""
    form = {"form": r"\*|\d+:\d+(,\d+:\d+)*|", "form_in_words": "* or a list of partition:broker"}
    return _declare(SettingType.LIST, (), doc, form)


def choice(default: str, doc: str, choices: tuple[str, ...], **options: object) -> Any:
    """One of the given choices."""
    return _declare(SettingType.STRING, default, doc, {"choices": choices, **options})


def settings_of(cls: type) -> dict[str, Setting]:
    """Return the settings that a class declares, by property name, in order."""
    found = {}
    for field in dataclasses.fields(cls):
        options = dict(field.metadata)
        kind, doc = options.pop("kind"), options.pop("doc")
        name = field.name.replace("_", ".")
        found[name] = Setting(
            name=name, attribute=field.name, kind=kind, default=field.default, documentation=doc, **options
        )
    return found
