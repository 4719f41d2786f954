"""Overrides of topics as they stand in ZooKeeper, kept in memory, and their changes.

`app/broker` loads all of them at start and calls `reload` for each change notification and `reconfigure` when the
broker's own settings, the topics' defaults, change; handlers and replication read what is in force. A change made here
is written conditionally, so two at once never overwrite each other, and becomes effective on every broker, this one
included, through its notification.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from odradek.base.config import BrokerConfig, TopicConfig
from odradek.base.errors import ConfigError, InvalidTopicError, RequestTimedOutError
from odradek.base.ports import Clock
from odradek.base.topics import check_topic_name
from odradek.zk import layout
from odradek.zk.port import BadVersion, ConnectionLost, NodeExists, SessionExpired, ZkClient
from odradek.zk.registration import announce_config_change

logger = logging.getLogger(__name__)

MAX_CONFLICTS: Final = 10
"""Conditional writes that may lose against somebody else's before the change is given up."""

RETRY_MS: Final = 1000
"""Rest before ZooKeeper is asked again."""

Change = Callable[[Mapping[str, str]], Mapping[str, str]]

MAX_COMPLAINTS: Final = 10_000
"""Warnings that are remembered; beyond them each is logged whenever it is due."""


class Complaints:
    """Warnings about stored settings, each logged once: they are looked at anew with every change of any setting."""

    def __init__(self, log: logging.Logger) -> None:
        """`log` gets the warnings."""
        self._log = log
        self._made: set[str] = set()

    def warn(self, text: str) -> None:
        """Log a warning that was not logged before."""
        if text in self._made:
            return
        if len(self._made) < MAX_COMPLAINTS:
            self._made.add(text)
        self._log.warning(text)


class ConfigStore:
    """The overrides of every topic, and the settings that follow from them."""

    def __init__(self, zk: ZkClient, broker_config: BrokerConfig) -> None:
        """Nothing is read yet; topics have the broker's defaults until `load`."""
        self._zk = zk
        self._broker_config = broker_config
        self._defaults = TopicConfig.of(broker_config, {})
        self._overrides: dict[str, Mapping[str, str]] = {}
        self._in_force: dict[str, TopicConfig] = {}
        self._complaints = Complaints(logger)
        self._read: set[str] = set()
        """Topics whose overrides, or that they have none, were read; notices keep these up to date."""
        self.on_change: Callable[[str, TopicConfig], None] | None = None
        """Called with topic and settings after each change."""
        self.on_new_defaults: Callable[[], None] = lambda: None
        """Called when the settings of any topic may have changed, because those of the broker did."""

    def overrides(self, topic: str) -> Mapping[str, str]:
        """What the topic sets for itself, as text."""
        return self._overrides.get(topic, {})

    def topic_config(self, topic: str) -> TopicConfig:
        """What is in force for the topic."""
        return self._in_force.get(topic, self._defaults)

    async def load_all(self) -> None:
        """Read the overrides of every topic."""
        await self.load(await self._zk.children_or_none(f"{layout.CONFIG}/topics") or [])

    async def load(self, topics: Iterable[str]) -> None:
        """Read the overrides of these topics; those without a znode have none."""
        # A name that is none (a peer may send anything) would be a path of something else.
        paths = {layout.config_path("topics", topic): topic for topic in topics if _is_topic_name(topic)}
        found = await self._zk.get_many(list(paths))
        for path, topic in paths.items():
            node = found.get(path)
            self._put(topic, {} if node is None else decoded(path, node[0]))
            self._read.add(topic)

    async def load_unread(self, topics: Iterable[str]) -> None:
        """Read the overrides of those of these topics that were not read yet.

        No notice tells of what a topic is given when it is made, so a broker without a replica does not know it.
        """
        unread = [topic for topic in topics if topic not in self._read]
        if unread:
            await self.load(unread)

    async def reload(self, topic: str) -> None:
        """Read a topic's overrides anew and tell who uses them."""
        await self.load([topic])
        if self.on_change is not None:
            self.on_change(topic, self.topic_config(topic))

    def forget(self, topic: str) -> None:
        """The topic was deleted."""
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
        """Settings in force; a key or value that means nothing here (another tool wrote it) is told and left out."""
        kept: dict[str, str] = {}
        for key, value in overrides.items():
            try:
                TopicConfig.of(self._broker_config, {key: value})
                kept[key] = value
            except ConfigError as error:
                self._complaints.warn(f"topic {topic}: an override in ZooKeeper has no effect: {error}")
        return TopicConfig.of(self._broker_config, kept)

    async def change(self, topic: str, change: Change) -> None:
        """Write `change(current overrides)` and notify every broker; see `change_entity`."""
        await change_entity(self._zk, "topics", topic, change)
        await self.reload(topic)

    def reconfigure(self, broker_config: BrokerConfig) -> None:
        """The broker has other settings: topics have other defaults, and who uses them is told."""
        self._broker_config = broker_config
        self._defaults = TopicConfig.of(broker_config, {})
        self._in_force = {topic: self._tolerant(topic, overrides) for topic, overrides in self._overrides.items()}
        self.on_new_defaults()


async def persist(read: Callable[[], Awaitable[None]], clock: Clock) -> None:
    """Read settings that changed, however long ZooKeeper is away: nobody tells of them a second time."""
    while True:
        try:
            await read()
        except (ConnectionLost, SessionExpired) as error:
            logger.warning("settings that changed are not read yet: %s", error)
            await clock.sleep_ms(RETRY_MS)
        else:
            return


async def change_entity(zk: ZkClient, kind: str, name: str, change: Change) -> None:
    """Write `change(current values)` to `/config/KIND/NAME` and notify every broker.

    `change` may be called again when somebody else wrote meanwhile. Raises what it raises, and `RequestTimedOutError`
    after ten such conflicts.
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
    raise RequestTimedOutError(f"The settings of {kind}/{name} kept changing; nothing was written. Try again.")


def _is_topic_name(name: str) -> bool:
    try:
        check_topic_name(name)
    except InvalidTopicError:
        return False
    return True


def decoded(path: str, data: bytes) -> dict[str, str]:
    """The overrides in a znode; none, as in Kafka, if it cannot be read: that shall not keep a broker from starting."""
    try:
        return layout.decode_config(path, data)
    except layout.LayoutError as error:
        logger.warning("settings in ZooKeeper have no effect: %s", error)
        return {}
