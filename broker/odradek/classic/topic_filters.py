"""Topic filters: a whitelist or a blacklist, which is a regular expression over the names of topics.

The expression is that of Java. As in Kafka, commas stand for alternatives, blanks and surrounding quotes are dropped,
and the whole name has to match.
"""

from __future__ import annotations

from typing import Final

from odradek.base.types import INTERNAL_TOPICS
from odradek.client.java_regex.java_pattern import compile_pattern


class TopicFilter:
    """Chooses topics. `Whitelist` and `Blacklist` are its two forms."""

    def __init__(self, expression: str, *, is_blacklist: bool) -> None:
        """Raises `ConfigError` if the expression is invalid."""
        self.expression: Final = expression.strip().replace(",", "|").replace(" ", "").strip("\"'")
        self.is_blacklist: Final = is_blacklist
        self._pattern: Final = compile_pattern("topic filter", self.expression)

    def allows(self, topic: str, *, exclude_internal_topics: bool) -> bool:
        """Return whether a topic is chosen. Internal topics are not if they are excluded."""
        if exclude_internal_topics and topic in INTERNAL_TOPICS:
            return False
        return (self._pattern.fullmatch(topic) is not None) != self.is_blacklist


class Whitelist(TopicFilter):
    """Chooses the topics that match."""

    def __init__(self, expression: str) -> None:
        """Raises `ConfigError` if the expression is invalid."""
        super().__init__(expression, is_blacklist=False)


class Blacklist(TopicFilter):
    """Chooses the topics that do not match."""

    def __init__(self, expression: str) -> None:
        """Raises `ConfigError` if the expression is invalid."""
        super().__init__(expression, is_blacklist=True)
