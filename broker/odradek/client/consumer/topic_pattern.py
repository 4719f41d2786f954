"""The topics that match the pattern of a subscription, as they are created and deleted.

`consumer` creates it for a subscription with a pattern. Invariant: `on_topics` is called only after the metadata of all
topics have been received, and then whenever other topics match.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from odradek.base.errors import ConfigError
from odradek.client.cluster_client import Cluster
from odradek.client.metadata import ClusterView


class TopicPattern:
    """A pattern, and the topics that match it. Call `find` before the first use."""

    def __init__(
        self, cluster: Cluster, pattern: str | re.Pattern[str], on_topics: Callable[[frozenset[str]], None]
    ) -> None:
        """Raises `ConfigError` if `pattern` is not a valid regular expression."""
        try:
            self._pattern: Final = re.compile(pattern)
        except re.error as error:
            raise ConfigError(f"the pattern {pattern!r} is not a regular expression: {error}") from error
        self._cluster: Final = cluster
        self._on_topics: Final = on_topics
        self._is_closed = False
        self.topics: frozenset[str] | None = None
        """The matching topics; None before the metadata have been received."""

    async def find(self) -> None:
        """Receive the metadata of all topics, and follow them. Raises `NetworkError` or `RequestTimedOutError`."""
        self._cluster.follow_all(True)
        view = await self._cluster.fresh_view()
        if not self._is_closed and self._match not in self._cluster.on_change:
            self._cluster.on_change.append(self._match)
            self._match(view)

    def close(self) -> None:
        """Stop, and follow only single topics again."""
        self._is_closed = True
        self._cluster.follow_all(False)
        if self._match in self._cluster.on_change:
            self._cluster.on_change.remove(self._match)

    def _match(self, view: ClusterView) -> None:
        excludes_internal = self._cluster.settings.exclude_internal_topics
        found = frozenset(
            topic.name
            for topic in view.topics.values()
            # A topic without partitions does not exist, or may not be described.
            if topic.partitions and not (topic.internal and excludes_internal) and self._pattern.fullmatch(topic.name)
        )
        if found != self.topics:
            self.topics = found
            self._on_topics(found)
