"""One process of a mirror: copies partitions (`copier_group`), follows topics, and follows groups where it leads.

`cli/mirror_command` runs it. All processes of a mirror have the same configuration. Each follows the topics of all
sources, because it has to know what is to be copied. Only the leader of a source, which owns the partition of its
offset syncs in the mirror's group, changes the target and translates the offsets of groups.

The target has to be reachable at the start. A source that cannot be reached is tried again, and delays nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import Final

from odradek.base.errors import OdradekError, ProtocolError
from odradek.base.ports import Clock
from odradek.client.cluster_client import Cluster
from odradek.client.metadata import Backoff
from odradek.metrics.http import Probe
from odradek.mirror.copier_group import CopierGroup, target_settings
from odradek.mirror.group_follower import GroupFollower
from odradek.mirror.mirror_config import MirrorConfig, SourceConfig
from odradek.mirror.offset_syncs import OffsetSyncs
from odradek.mirror.topic_follower import TopicFollower

_LOG: Final = logging.getLogger(__name__)

_BACKOFF: Final = Backoff(1_000, 30_000)


class MirrorProcess:
    """A process of a mirror. `run` lasts until `stop`."""

    def __init__(self, config: MirrorConfig, *, instance: str, is_static: bool, clock: Clock) -> None:
        """`instance` and `is_static` are those of `CopierGroup`."""
        self._config: Final = config
        self._clock: Final = clock
        self._name: Final = f"{config.group}-{instance}"
        self._target: Final = Cluster(target_settings(config.target, f"{self._name}-follower"), clock=clock)
        self._syncs: Final = {source.name: OffsetSyncs(config, source, self._target) for source in config.sources}
        self._leading: Final[set[str]] = set()
        self._changed: Final = {source.name: asyncio.Event() for source in config.sources}
        self.copiers: Final = CopierGroup(
            config,
            instance=instance,
            is_static=is_static,
            clock=clock,
            listeners=self._syncs,
            on_leading=self._lead,
        )
        """The copying part."""

    def stop(self) -> None:
        """Let `run` end in order: after the transaction that goes on."""
        self.copiers.stop()

    def ready(self) -> Probe:
        """Whether the process is a member of the mirror's group."""
        if self.copiers.is_member:
            return Probe(passed=True, reason="the process is a member of the mirror's group")
        return Probe(passed=False, reason="the process has not joined the mirror's group yet")

    async def run(self) -> None:
        """Mirror until `stop` is called. Raises the errors of `CopierGroup.run`, and `ProtocolError` if the target
        cannot be used at the start.
        """
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._target)
            for syncs in self._syncs.values():
                await stack.enter_async_context(syncs)
            followers = [
                asyncio.create_task(self._follow(source), name=f"follower of {source.name}")
                for source in self._config.sources
            ]
            copying = asyncio.create_task(self.copiers.run(), name="copiers")
            try:
                # A follower only ends because of a bug; then the process ends too.
                await asyncio.wait({copying, *followers}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await _end(followers)
                self.copiers.stop()
                await copying

    def _lead(self, source: str, is_leading: bool) -> None:
        _LOG.info("this process %s source %s", "leads" if is_leading else "does not lead any more", source)
        (self._leading.add if is_leading else self._leading.discard)(source)
        self._changed[source].set()

    # Followers

    async def _follow(self, source: SourceConfig) -> None:
        cluster = await self._connected(source)
        try:
            topics = TopicFollower(
                self._config,
                source,
                cluster,
                self._target,
                lambda partitions: self.copiers.set_plan(source.name, partitions),
                leads=lambda: source.name in self._leading,
            )
            groups: asyncio.Task[None] | None = None
            try:
                while True:
                    self._changed[source.name].clear()
                    leads = source.name in self._leading
                    if leads and groups is None:
                        follower = GroupFollower(self._config, source, cluster, self._target)
                        groups = asyncio.create_task(follower.run(), name=f"groups of {source.name}")
                    elif not leads and groups is not None:
                        await _end([groups])
                        groups = None
                    await self._refresh(topics, source)
            finally:
                await _end([] if groups is None else [groups])
                await topics.close()
        finally:
            await cluster.close()

    async def _connected(self, source: SourceConfig) -> Cluster:
        failures = 0
        while True:
            settings = source.address.settings(client_id=f"{self._name}-follower", group_id=None)
            cluster = Cluster(settings, clock=self._clock)
            try:
                await cluster.start()
            except ProtocolError as error:
                # The reader of the source logs it as well, with a higher level.
                _LOG.info("the topics of source %s are not known yet: %s", source.name, error)
                failures += 1
                await self._clock.sleep_ms(_BACKOFF.delay_ms(failures, self._clock.random()))
            else:
                return cluster

    async def _refresh(self, topics: TopicFollower, source: SourceConfig) -> None:
        """Follow the topics once, then wait for the next time or a change of the leader."""
        try:
            await topics.refresh()
        except OdradekError as error:
            _LOG.warning("the topics of source %s could not be followed: %s", source.name, error)
        changed = self._changed[source.name]
        timer = self._clock.call_later(self._config.refresh_seconds * 1000, changed.set)
        try:
            await changed.wait()
        finally:
            timer.cancel()


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel tasks, wait until they have ended, and raise the error of one that had failed before."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()
