"""The properties of one listener: `listener.name.NAME.X` precedes `X`, and of SASL `listener.name.NAME.MECHANISM.X`
precedes both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from odradek.base.config import BROKER_SETTINGS


class ListenerProperties:
    """The properties of a server.properties file as one listener sees them."""

    def __init__(self, properties: Mapping[str, str], listener: str) -> None:
        """`listener` is its name, in any case."""
        self._properties: Final = properties
        self.prefix: Final = f"listener.name.{listener.lower()}."
        """What precedes the properties of this listener."""

    def name(self, setting: str, mechanism: str = "") -> str:
        """Return the name under which a setting is set; without a value, its own."""
        names = (self.own_name(setting, mechanism), self.prefix + setting, setting)
        return next((name for name in names if name in self._properties), setting)

    def own_name(self, setting: str, mechanism: str = "") -> str:
        """Return the name under which a setting applies to this listener only, and to the mechanism if one is given."""
        return f"{self.prefix}{mechanism.lower()}.{setting}" if mechanism else self.prefix + setting

    def value(self, setting: str, mechanism: str = "") -> object:
        """Return the typed value, by default that of all listeners. Raises `ConfigError` if it is not valid."""
        declared = BROKER_SETTINGS[setting]
        text = self._properties.get(self.name(setting, mechanism))
        return declared.default if text is None else declared.parse(text)

    def number(self, setting: str, mechanism: str = "") -> int:
        """Return the value of a setting that is a whole number. Raises `ConfigError`."""
        value = self.value(setting, mechanism)
        assert isinstance(value, int), f"{setting} is a number"
        return value

    def text(self, name: str) -> str | None:
        """Return the value of a property by its full name, as text; None if it is not set or empty."""
        return self._properties.get(name) or None

    def override(self, setting: str) -> int | None:
        """Return the number that this listener has for itself; None if it has none. Raises `ConfigError`."""
        return self.number(setting) if self.prefix + setting in self._properties else None

    def merged(self, mechanism: str = "") -> Mapping[str, str]:
        """Return all properties without prefixes."""
        merged = dict(self._properties)
        for prefix in (self.prefix, f"{self.prefix}{mechanism.lower()}." if mechanism else ""):
            if prefix:
                merged |= {
                    name.removeprefix(prefix): value
                    for name, value in self._properties.items()
                    if name.startswith(prefix)
                }
        return merged
