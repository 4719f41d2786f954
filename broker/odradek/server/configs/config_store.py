"""The overrides of topics in ZooKeeper, cached in memory, and their changes.

`app/broker` loads all of them at start and calls `reload` for each change notification, and `reconfigure` when the
broker's settings, which are the defaults of topics, change. Handlers and replication read the effective settings. A
change made here is a conditional write, so concurrent changes do not overwrite each other. It takes effect on every
broker, including this one, through its notification.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from odradek.base.config import BrokerConfig, TopicConfig
from odradek.base.errors import ConfigError, InvalidTopicError, RequestTimedOutError
from odradek.base.ports import Clock
from odradek.base.topic_rules import check_topic_name
from odradek.log.partition_log import PartitionLog
from odradek.zk import layout
from odradek.zk.port import BadVersion, ConnectionLost, NodeExists, SessionExpired, ZkClient
from odradek.zk.registration import announce_config_change

logger = logging.getLogger(__name__)

MAX_CONFLICTS: Final = 10
"""Maximum number of attempts to write a change. An attempt fails if another change was written meanwhile."""

RETRY_MS: Final = 1000
"""Milliseconds before ZooKeeper is read again after a failure."""

Change = Callable[[Mapping[str, str]], Mapping[str, str]]

MAX_COMPLAINTS: Final = 10_000
"""Maximum number of warnings that are remembered. Further ones are logged each time."""


class SettingWarnings:
    """Logs each warning about stored settings once, although the settings are parsed again after every change."""

    def __init__(self, log: logging.Logger) -> None:
        """`log` is called with the warnings."""
        self._log = log
        self._made: set[str] = set()

    def warn(self, text: str) -> None:
        """Log a warning unless it was logged before."""
        if text in self._made:
            return
        if len(self._made) < MAX_COMPLAINTS:
            self._made.add(text)
        self._log.warning(text)


class ConfigStore:
    """The overrides of all topics, and the effective settings."""

    def __init__(self, zk: ZkClient, broker_config: BrokerConfig) -> None:
        """Create a store that has read nothing. Topics have the broker's defaults until `load_all`."""
        self._zk = zk
        self._broker_config = broker_config
        self._defaults = TopicConfig.of(broker_config, {})
        self._overrides: dict[str, Mapping[str, str]] = {}
        self._in_force: dict[str, TopicConfig] = {}
        self._complaints = SettingWarnings(logger)
        self._read: set[str] = set()
        """Topics whose overrides were read, even if they have none; notifications keep them up to date."""
        self.on_change: Callable[[str, TopicConfig], None] | None = None
        """Called with the topic and its settings after each change."""
        self.on_new_defaults: Callable[[], None] = lambda: None
        """Called after a change of the broker's settings, which may change the settings of every topic."""

    def apply_to(self, logs: Callable[[], Iterable[PartitionLog]]) -> None:
        """From now on, give the logs of topics their changed settings."""

        def topic_changed(topic: str, config: TopicConfig) -> None:
            for log in logs():
                if log.topic_partition.topic == topic:
                    log.update_config(config)

        def defaults_changed() -> None:
            for log in logs():
                config = self.topic_config(log.topic_partition.topic)
                if log.config != config:
                    log.update_config(config)

        self.on_change, self.on_new_defaults = topic_changed, defaults_changed

    def overrides(self, topic: str) -> Mapping[str, str]:
        """Return the overrides of the topic as text."""
        return self._overrides.get(topic, {})

    def topic_config(self, topic: str) -> TopicConfig:
        """Return the effective settings of the topic."""
        return self._in_force.get(topic, self._defaults)

    async def load_all(self) -> None:
        """Read the overrides of all topics."""
        await self.load(await self._zk.children_or_none(f"{layout.CONFIG}/topics") or [])

    async def load(self, topics: Iterable[str]) -> None:
        """Read the overrides of these topics. A topic without a znode has none."""
        # Names come from requests. An invalid one could be the path of a znode that has another purpose.
        paths = {layout.config_path("topics", topic): topic for topic in topics if _is_topic_name(topic)}
        found = await self._zk.get_many(list(paths))
        for path, topic in paths.items():
            node = found.get(path)
            self._put(topic, {} if node is None else decoded(path, node[0]))
            self._read.add(topic)

    async def load_unread(self, topics: Iterable[str]) -> None:
        """Read the overrides of these topics, unless they were read before.

        There is no notification for the overrides of a new topic, so a broker without a replica does not know them.
        """
        unread = [topic for topic in topics if topic not in self._read]
        if unread:
            await self.load(unread)

    async def reload(self, topic: str) -> None:
        """Read a topic's overrides again and call `on_change`."""
        await self.load([topic])
        if self.on_change is not None:
            self.on_change(topic, self.topic_config(topic))

    def forget(self, topic: str) -> None:
        """Remove a deleted topic from the cache."""
        self._put(topic, {})
        self._read.discard(topic)

    def _put(self, topic: str, overrides: Mapping[str, str]) -> None:
        if not overrides:
            self._overrides.pop(topic, None)
            self._in_force.pop(topic, None)
            return
        self._overrides[topic] = dict(overrides)
        self._in_force[topic] = self._tolerant(topic, overrides)

    def _tolerant(self, topic: str, overrides: Mapping[str, str]) -> TopicConfig:
        """Return the effective settings. An invalid key or value that another tool has written is logged and
        ignored."""
        kept: dict[str, str] = {}
        for key, value in overrides.items():
            try:
                TopicConfig.of(self._broker_config, {key: value})
                kept[key] = value
            except ConfigError as error:
                self._complaints.warn(f"topic {topic}: an override in ZooKeeper has no effect: {error}")
        return TopicConfig.of(self._broker_config, kept)

    async def change(self, topic: str, change: Change) -> None:
        """Write `change(current overrides)` and notify all brokers; see `change_entity`."""
        await change_entity(self._zk, "topics", topic, change)
        await self.reload(topic)

    def reconfigure(self, broker_config: BrokerConfig) -> None:
        """Apply changed settings of the broker, which are the defaults of topics."""
        self._broker_config = broker_config
        self._defaults = TopicConfig.of(broker_config, {})
        self._in_force = {topic: self._tolerant(topic, overrides) for topic, overrides in self._overrides.items()}
        self.on_new_defaults()


async def persist(read: Callable[[], Awaitable[None]], clock: Clock) -> None:
    """Read changed settings. Retry while ZooKeeper does not answer, because the notification is not repeated."""
    while True:
        try:
            await read()
        except (ConnectionLost, SessionExpired) as error:
            logger.warning("changed settings cannot be read from ZooKeeper yet; the broker tries again: %s", error)
            await clock.sleep_ms(RETRY_MS)
        else:
            return


async def change_entity(zk: ZkClient, kind: str, name: str, change: Change) -> None:
    """Write `change(current values)` to `/config/KIND/NAME` and notify all brokers.

    After a concurrent write, `change` is called again with the new values. Raises the errors of `change`, and
    `RequestTimedOutError` after ten such conflicts.
    """
    path = layout.config_path(kind, name)
    for _ in range(MAX_CONFLICTS):
        node = await zk.get_or_none(path)
        current = {} if node is None else decoded(path, node[0])
        data = layout.encode_config(change(current))
        try:
            if node is None:
                await zk.create(path, data, make_parents=True)
            else:
                await zk.set(path, data, version=node[1].version)
        except (BadVersion, NodeExists):
            continue
        await announce_config_change(zk, f"{kind}/{name}")
        return
    raise RequestTimedOutError(
        f"The settings of {kind}/{name} were not changed because of concurrent changes: try again."
    )


def _is_topic_name(name: str) -> bool:
    try:
        check_topic_name(name)
    except InvalidTopicError:
        return False
    return True


def decoded(path: str, data: bytes) -> dict[str, str]:
    """Return the overrides in a znode. As in Kafka, an invalid znode counts as empty, so that a broker can start."""
    try:
        return layout.decode_config(path, data)
    except layout.LayoutError as error:
        logger.warning("settings in ZooKeeper have no effect: %s", error)
        return {}
