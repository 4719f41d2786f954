"""Settings in the form of DescribeConfigs and CreateTopics: effective values, sources, descriptions.

Converts `BrokerSettings` and a topic's overrides into the `configs` of a response, without secret values. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import dropwhile
from typing import Final

from odradek.base.config import BROKER_SETTINGS, TOPIC_SETTINGS, TopicConfig, broker_setting
from odradek.base.setting_definitions import Setting, Update
from odradek.base.settings_catalogue import IDLE_BROKER_SETTINGS, IDLE_TOPIC_SETTINGS, INTERNAL_SETTINGS
from odradek.server.configs.broker_configs import BrokerSettings, Origin, Source

Entry = dict[str, object]

SYNONYMS: Final[Mapping[str, Sequence[str]]] = {
    "message_format": ("log.message.format.version",),
    "flush_interval_ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "retention_ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "roll_ms": ("log.roll.ms", "log.roll.hours"),
    "roll_jitter_ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
}
"""Settings of the broker that determine one attribute together, in order of precedence."""

_OF_BROKER: Final = {names[0]: names for names in SYNONYMS.values()}
"""The same groups of settings, by the first setting of each."""


def topic_entries(
    settings: BrokerSettings, overrides: Mapping[str, str], in_force: TopicConfig, *, explain: bool = False
) -> list[Entry]:
    """Return all settings of a topic, including Kafka's settings that have no effect here."""
    entries = []
    for setting in (*TOPIC_SETTINGS.values(), *IDLE_TOPIC_SETTINGS.values()):
        origins = []
        if setting.name in overrides:
            origins.append(Origin(setting, overrides[setting.name], Source.DYNAMIC_TOPIC))
        if setting.broker:
            origins += settings.origins(SYNONYMS.get(setting.broker, (setting.broker.replace("_", "."),)))
        if setting.name in TOPIC_SETTINGS:
            value = setting.render(getattr(in_force, setting.attribute))
        else:
            value = origins[0].value if origins else setting.render(setting.default)
        entries.append(_entry(setting, value, origins, explain=explain, read_only=False))
    return entries


def broker_entries(settings: BrokerSettings, *, explain: bool = False) -> list[Entry]:
    """Return all settings of this broker, including Kafka's settings that have no effect here and unknown ones."""
    entries = []
    for setting in BROKER_SETTINGS.values():
        # Values of synonyms are listed only after a value of this name itself.
        origins = list(
            dropwhile(
                lambda origin, own=setting: origin.setting is not own,  # type: ignore[misc]
                settings.origins(_OF_BROKER.get(setting.name, (setting.name,))),
            )
        )
        value = setting.render(getattr(settings.config, setting.attribute))
        entries.append(_entry(setting, value, origins, explain=explain, read_only=_is_read_only(setting)))
    entries += _idle_entries(settings, explain=explain)
    for values, source in ((settings.own, Source.DYNAMIC_BROKER), (settings.defaults, Source.DYNAMIC_DEFAULT_BROKER)):
        known = {entry["name"] for entry in entries}
        entries += [_unknown(name, source) for name in values if name not in known]
    return entries


def default_entries(settings: BrokerSettings, *, explain: bool = False) -> list[Entry]:
    """Return the defaults for all brokers that are set."""
    entries = []
    for name, value in settings.defaults.items():
        setting = broker_setting(name)
        if setting is None:
            entries.append(_unknown(name, Source.DYNAMIC_DEFAULT_BROKER))
            continue
        origin = Origin(setting, value, Source.DYNAMIC_DEFAULT_BROKER)
        entries.append(_entry(setting, value, [origin], explain=explain, read_only=_is_read_only(setting)))
    return entries


def _idle_entries(settings: BrokerSettings, *, explain: bool) -> list[Entry]:
    """Return Kafka's settings that have no effect here, with their values."""
    shown = [name for name in IDLE_BROKER_SETTINGS if name not in INTERNAL_SETTINGS]
    given = [name for name in settings.given_names() if name not in BROKER_SETTINGS]
    entries = []
    for name in dict.fromkeys([*shown, *given]):
        setting, origins = broker_setting(name), settings.origins((name,))
        if setting is not None and (origins or name in shown):
            value = origins[0].value if origins else None
            entries.append(_entry(setting, value, origins, explain=explain, read_only=_is_read_only(setting)))
    return entries


def _is_read_only(setting: Setting) -> bool:
    return setting.dynamic is Update.READ_ONLY


def _entry(setting: Setting, value: str | None, origins: Sequence[Origin], *, explain: bool, read_only: bool) -> Entry:
    source = origins[0].source if origins else Source.DEFAULT
    return {
        "name": setting.name,
        "value": None if setting.sensitive else value,
        "read_only": read_only,
        "config_source": int(source),
        "is_default": source is Source.DEFAULT,
        "is_sensitive": setting.sensitive,
        "synonyms": [_synonym(origin) for origin in origins],
        "config_type": setting.kind.value,
        "documentation": setting.documentation if explain else None,
    }


def _synonym(origin: Origin) -> Entry:
    value = None if origin.setting.sensitive else origin.value
    return {"name": origin.setting.name, "value": value, "source": int(origin.source)}


def _unknown(name: str, source: Source) -> Entry:
    """Return the entry of an unknown setting. As in Kafka, it has no value, because that may be a secret."""
    return {
        "name": name,
        "value": None,
        "read_only": False,
        "config_source": int(source),
        "is_default": False,
        "is_sensitive": True,
        "synonyms": [{"name": name, "value": None, "source": int(source)}],
        "config_type": 0,
        "documentation": None,
    }
