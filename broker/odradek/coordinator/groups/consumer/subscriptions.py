"""The topics to which members of a consumer group subscribe: names and regular expressions.

Regular expressions have the syntax of RE2 and must match the whole name of a topic, as in Kafka, which uses RE2/J. As
in Kafka, they match internal topics, too, if the caller may describe them.

A regular expression is resolved when a member brings it, when topics changed, and when its topics are older than
`regex_refresh_interval_ms`, because the permissions of the members may have changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from odradek.base.errors import InvalidRegularExpressionError
from odradek.coordinator.groups.consumer.consumer_values import (
    ConsumerMember,
    ResolvedRegex,
    RuleContext,
    TopicShape,
)

NO_REGEXES: Final[Mapping[str, ResolvedRegex]] = MappingProxyType({})


def check_regex(regex: str) -> None:
    """Check a regular expression. Raises `InvalidRegularExpressionError` with the expression and the problem."""
    problem = _compile(regex)
    if isinstance(problem, str):
        # The problem comes first because long messages are truncated.
        raise InvalidRegularExpressionError(
            f"The regular expression is invalid in the syntax of RE2 ({problem}): {regex!r}"
        )


def is_stale(regexes: Mapping[str, ResolvedRegex], context: RuleContext) -> bool:
    """Whether the topics of a regular expression have to be looked up again, because they are too old or because the
    topics of the cluster have changed."""
    if not regexes:
        return False
    oldest_ms = context.now_ms - context.settings.regex_refresh_interval_ms
    return context.topics_changed or any(resolved.resolved_ms <= oldest_ms for resolved in regexes.values())


def resolve(
    known: Mapping[str, ResolvedRegex], wanted: Collection[str], context: RuleContext
) -> Mapping[str, ResolvedRegex]:
    """Return the topics of the wanted regular expressions.

    Topics that the client of the request may not describe are left out. An expression whose topics did not change
    keeps its value in `known` until that is too old, so that it needs no record.
    """
    oldest_ms = context.now_ms - context.settings.regex_refresh_interval_ms
    version = max((resolved.version for resolved in known.values()), default=-1) + 1
    result: dict[str, ResolvedRegex] = {}
    names: Collection[str] | None = None
    for regex in sorted(wanted):
        before = known.get(regex)
        is_fresh = before is not None and before.resolved_ms > oldest_ms
        if before is not None and is_fresh and not context.topics_changed:
            result[regex] = before
            continue
        if names is None:
            names = context.topics.names()
        topics = frozenset(name for name in matches(regex, names) if context.may_describe(name))
        if before is not None and is_fresh and topics == before.topics:
            result[regex] = before
        else:
            result[regex] = ResolvedRegex(topics=topics, version=version, resolved_ms=context.now_ms)
    return known if result == known else MappingProxyType(result)


def matches(regex: str, names: Iterable[str]) -> list[str]:
    """Return the names that a regular expression matches as a whole.

    An invalid expression matches none. `check_regex` refuses it when a member brings it, so that it can only come from
    a log that another version of RE2 has written.
    """
    pattern = _compile(regex)
    if isinstance(pattern, str):
        return []
    # The library needs a third of the time for bytes, because it computes no positions of characters.
    return [name for name in names if pattern.fullmatch(name.encode()) is not None]


def effective_topics(member: ConsumerMember, regexes: Mapping[str, ResolvedRegex]) -> frozenset[str]:
    """Return the names of all topics to which a member subscribes, whether they exist or not."""
    resolved = None if member.regex is None else regexes.get(member.regex)
    return member.topics if resolved is None else member.topics | resolved.topics


def subscribed_shapes(names: Iterable[str], context: RuleContext) -> Mapping[str, TopicShape]:
    """Return the topics that exist among these names."""
    shapes = ((name, context.topics.shape(name)) for name in sorted(names))
    return MappingProxyType({name: shape for name, shape in shapes if shape is not None})


def _compile(regex: str) -> Any:
    """Return the compiled expression, or the problem as a string."""
    # Few brokers need it at once, and it takes longer to load than the rest of this package.
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(regex, options)
    except re2.error as error:
        (problem,) = error.args
        return problem.decode("utf-8", "replace") if isinstance(problem, bytes) else str(problem)
