"""The effective settings of this broker, which can change while it runs (KIP-226).

`server.properties` has the initial settings; `/config/brokers/<default>`, for all brokers, and `/config/brokers/ID`,
for this one, override them in this order. `app/broker` loads them first and calls `reload` for each change
notification; components whose settings can change subscribe and get the whole new `BrokerConfig`. Invariant: a rejected
value in ZooKeeper affects neither the other settings nor the broker.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from odradek.base.config import BROKER_SETTINGS, BrokerConfig, broker_setting
from odradek.base.errors import ConfigError, InvalidRequestError
from odradek.base.setting_definitions import Setting, Update
from odradek.base.settings_catalogue import check_allowed
from odradek.server.configs.config_store import Change, SettingWarnings, change_entity, decoded
from odradek.zk import layout
from odradek.zk.port import ZkClient

logger = logging.getLogger(__name__)

LISTENER_PREFIX: Final = "listener.name."
SECRETS: Final = ("password", "jaas.config", "secret", "keystore.key")
"""Suffixes of the names of settings whose values Kafka stores encrypted."""

LISTENERS: Final = ("listeners", "advertised.listeners", "listener.security.protocol.map")
"""Settings that are validated together."""

GRADUAL: Final = ("log.cleaner.threads", "num.recovery.threads.per.data.dir", "num.replica.fetchers")
"""Numbers of threads. As in Kafka, one change can at most double or halve them, to limit the effect of a typo."""


class Source(IntEnum):
    """Source of an effective value, numbered as in DescribeConfigs."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6


class Origin(NamedTuple):
    """A value of a setting at one level, which may be overridden at another."""

    setting: Setting
    value: str | None
    source: Source


class BrokerSettings:
    """The effective settings of this broker, and their sources."""

    def __init__(self, zk: ZkClient, static: BrokerConfig, properties: Mapping[str, str]) -> None:
        """`static` is the configuration in `properties`. It is effective until `load`."""
        self._zk = zk
        self._static = static
        self._given = dict(properties)
        if "log.dir" in properties:
            self._given.setdefault("log.dirs", properties["log.dir"])
        self.config = static
        self.own: Mapping[str, str] = {}
        """The settings for this broker in ZooKeeper as text, including those without an effect."""
        self.defaults: Mapping[str, str] = {}
        """The settings for all brokers in ZooKeeper."""
        self._complaints = SettingWarnings(logger)
        self._subscribers: list[Callable[[BrokerConfig], None]] = []
        self.dry_run: Callable[[BrokerConfig], Awaitable[None]] = _accept
        """Tries to apply settings without a lasting change. Raises `ConfigError`, for example if an address is in
        use."""

    @property
    def name(self) -> str:
        """The name of this broker as a configuration entity."""
        return str(self._static.broker_id)

    def subscribe(self, reconfigure: Callable[[BrokerConfig], None]) -> None:
        """Call `reconfigure`, in the order of subscription, whenever the effective settings change."""
        self._subscribers.append(reconfigure)

    async def load(self) -> None:
        """Read the settings for all brokers and for this one from ZooKeeper, and apply them."""
        levels = {name: layout.config_path("brokers", name) for name in (layout.DEFAULT_ENTITY, self.name)}
        found = await self._zk.get_many(list(levels.values()))
        nodes = {name: found.get(path) for name, path in levels.items()}
        values = {name: {} if node is None else decoded(levels[name], node[0]) for name, node in nodes.items()}
        self._put(values[layout.DEFAULT_ENTITY], values[self.name])

    async def reload(self, entity: str) -> None:
        """Read and apply the changed settings of an entity. Those of another broker are ignored."""
        if entity in (layout.DEFAULT_ENTITY, self.name):
            await self.load()

    def _put(self, defaults: Mapping[str, str], own: Mapping[str, str]) -> None:
        if (defaults, own) == (self.defaults, self.own):
            return
        self.defaults, self.own = defaults, own
        config = self._tolerant(self._tolerant(self._static, self._common(defaults)), own)
        if config == self.config:
            return
        before, self.config = self.config, config
        for setting in BROKER_SETTINGS.values():
            old, new = getattr(before, setting.attribute), getattr(config, setting.attribute)
            if old != new:
                logger.info("%s is now %s, was %s", setting.name, *map(setting.shown, (new, old)))
        for reconfigure in self._subscribers:
            reconfigure(config)

    def _tolerant(self, config: BrokerConfig, values: Mapping[str, str]) -> BrokerConfig:
        """Return the settings with overrides applied. A value that this broker rejects is logged and ignored."""
        # The settings of listeners are validated together, so either all or none of them are applied.
        of_listeners = {name: values[name] for name in LISTENERS if name in values}
        try:
            config = config.with_dynamic(of_listeners)
        except ConfigError as error:
            self._complaints.warn(f"settings of listeners in ZooKeeper have no effect: {error}")
        for name, value in values.items():
            if name in of_listeners:
                continue
            try:
                if name in BROKER_SETTINGS:
                    config = config.with_dynamic({name: value})
                else:
                    check_allowed(name, value)
                    self._warn_without_effect(name)
            except ConfigError as error:
                self._complaints.warn(f"a setting of brokers in ZooKeeper has no effect: {error}")
        return config

    def _common(self, values: Mapping[str, str]) -> Mapping[str, str]:
        """Return the defaults for all brokers, without settings that are only allowed per broker."""
        kept = {name: value for name, value in values.items() if not _is_per_broker(name)}
        for name in values.keys() - kept.keys():
            self._complaints.warn(f"{name} has no effect as a default for all brokers: set it for each broker")
        return kept

    def _warn_without_effect(self, name: str) -> None:
        what = "a setting of Kafka" if broker_setting(name) else "not a setting of this broker or of Kafka"
        self._complaints.warn(f"{name} is {what}: it is stored in ZooKeeper and has no effect")

    # Description

    def origins(self, names: Collection[str]) -> list[Origin]:
        """Return the values of a setting at all levels, under any of its `names`. The first one is effective.

        An unknown name has no values.
        """
        settings = [setting for name in names if (setting := broker_setting(name)) is not None]
        levels = (
            (self._accepted(self.own), Source.DYNAMIC_BROKER),
            (self._accepted(self.defaults), Source.DYNAMIC_DEFAULT_BROKER),
            (self._given, Source.STATIC_BROKER),
        )
        found = [
            Origin(setting, values[setting.name], source)
            for values, source in levels
            for setting in settings
            if setting.name in values
        ]
        defaults = [
            Origin(setting, setting.render(setting.default), Source.DEFAULT)
            for setting in settings
            if setting.default is not None
        ]
        return found + defaults

    def given_names(self) -> list[str]:
        """Return the settings of this broker in the file and in ZooKeeper, including those without an effect."""
        return list({**self._given, **self.defaults, **self.own})

    @staticmethod
    def _accepted(values: Mapping[str, str]) -> Mapping[str, str]:
        """Return those settings of a level that this broker accepts."""
        return {key: value for key, value in values.items() if _is_acceptable(key, value)}

    # Changes

    def check(self, entity: str, changed: Mapping[str, str], names: Collection[str]) -> BrokerConfig:
        """Return the settings that are effective after an entity's settings become `changed`, of which `names` are new.

        Raises `InvalidRequestError` if they are invalid.

        As in Kafka, an unknown name can be set, because it may belong to a plug-in. It has no effect here.
        """
        for name in names:
            _check_change(name, changed[name], is_default=entity == layout.DEFAULT_ENTITY)
            if name not in BROKER_SETTINGS:
                self._warn_without_effect(name)
        try:
            config = self._static
            for values in (changed, self.own) if entity == layout.DEFAULT_ENTITY else (self.defaults, changed):
                known = {
                    name: text
                    for name, text in values.items()
                    if name in BROKER_SETTINGS and _is_acceptable(name, text)
                }
                config = config.with_dynamic(known)
        except ConfigError as error:
            raise InvalidRequestError(str(error)) from error
        for name in GRADUAL:
            attribute = BROKER_SETTINGS[name].attribute
            now, wanted = getattr(self.config, attribute), getattr(config, attribute)
            if not now // 2 <= wanted <= now * 2:
                raise InvalidRequestError(
                    f"{name}={wanted} differs too much from {now}: one change can at most double or halve it"
                )
        return config

    async def try_out(self, config: BrokerConfig) -> None:
        """Raise `InvalidRequestError` if this broker cannot apply the result of `check`. Changes nothing."""
        attributes = [BROKER_SETTINGS[name].attribute for name in LISTENERS]
        if all(getattr(config, attribute) == getattr(self.config, attribute) for attribute in attributes):
            return
        try:
            await self.dry_run(config)
        except ConfigError as error:
            raise InvalidRequestError(str(error)) from error

    async def change(self, entity: str, change: Change) -> None:
        """Write an entity's settings, notify all brokers, and apply them here. Raises the errors of `change_entity`."""
        await change_entity(self._zk, "brokers", entity, change)
        await self.reload(entity)


async def _accept(config: BrokerConfig) -> None:
    return None


def _is_per_broker(name: str) -> bool:
    setting = broker_setting(name)
    return setting is not None and setting.dynamic is Update.PER_BROKER


def _check_change(name: str, value: str, *, is_default: bool) -> None:
    if name.startswith(LISTENER_PREFIX):
        raise InvalidRequestError(
            f"{name} cannot be set: settings for a single listener cannot be changed while brokers run"
        )
    setting = broker_setting(name)
    if name.endswith(SECRETS) or (setting is not None and setting.sensitive):
        raise InvalidRequestError(
            f"{name} is a secret and is not stored in ZooKeeper: set it in server.properties and restart the broker"
        )
    if setting is None:
        return
    if setting.dynamic is Update.READ_ONLY:
        raise InvalidRequestError(
            f"{name} cannot be changed while the broker runs: set it in server.properties and restart the broker"
        )
    if is_default and setting.dynamic is Update.PER_BROKER:
        raise InvalidRequestError(f"{name} can only be set for each broker, not as a default for all brokers")
    try:
        check_allowed(name, value)
        setting.parse(value)
    except ConfigError as error:
        raise InvalidRequestError(str(error)) from error


def _is_acceptable(name: str, value: str) -> bool:
    setting = broker_setting(name)
    if setting is None or setting.dynamic is Update.READ_ONLY:
        return False
    try:
        check_allowed(name, value)
        setting.parse(value)
    except ConfigError:
        return False
    return True
