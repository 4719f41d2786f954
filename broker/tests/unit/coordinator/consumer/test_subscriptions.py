"""Topics of subscriptions: names, regular expressions, when they are looked up, and what the client may see."""

from __future__ import annotations

import subprocess
import sys

import pytest

from odradek.base.errors import InvalidRegularExpressionError
from odradek.coordinator.groups.consumer.consumer_values import (
    ConsumerGroupSettings,
    ConsumerMember,
    ResolvedRegex,
    RuleContext,
)
from odradek.coordinator.groups.consumer.subscriptions import (
    check_regex,
    effective_topics,
    is_stale,
    matches,
    resolve,
    subscribed_shapes,
)
from odradek_testkit.consumer_groups.fake_topics import FakeTopics

NOW_MS = 1_000_000


def context(topics: FakeTopics, *, now_ms: int = NOW_MS, changed: bool = False, hidden: str = "") -> RuleContext:
    settings = ConsumerGroupSettings(regex_refresh_interval_ms=1000)
    return RuleContext(settings, topics, now_ms, changed, lambda name: name != hidden)


@pytest.mark.parametrize("regex", ["", "a|ab", "orders-[0-9]+", "(?i)Orders", "(?P<name>a)b*", r"\pL+", "ä.*"])
def test_valid_expressions(regex: str) -> None:
    check_regex(regex)


@pytest.mark.parametrize(
    ("regex", "problem"),
    [
        ("(a", "missing ): (a"),
        ("a{1001}", "invalid repetition size"),
        ("[z-a]", "invalid character class range"),
        (r"(a)\1", "invalid escape sequence"),
        ("(?=a)b", "invalid perl operator"),
        ("x" * 2_000_000, "too large"),
    ],
)
def test_invalid_expressions_are_named_with_their_problem(
    regex: str, problem: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InvalidRegularExpressionError) as caught:
        check_regex(regex)
    assert problem in str(caught.value)
    assert regex[:20].replace("\\", "\\\\") in str(caught.value)
    assert capfd.readouterr().err == "", "the library must not write to the log of the broker"


def test_an_expression_must_match_the_whole_name() -> None:
    names = ["a", "ab", "abc", "orders", "reorders"]
    assert matches("a|ab", names) == ["a", "ab"]
    assert matches("orders", names) == ["orders"]
    assert matches("", names) == []
    assert matches("(a", names) == []


def test_effective_topics_are_names_and_matches() -> None:
    member = ConsumerMember(member_id="m", rebalance_timeout_ms=1, topics=frozenset({"a"}), regex="b.*")
    regexes = {"b.*": ResolvedRegex(frozenset({"b1", "b2"}), 0)}
    assert effective_topics(member, regexes) == {"a", "b1", "b2"}
    assert effective_topics(member, {}) == {"a"}


def test_shapes_are_those_of_topics_that_exist() -> None:
    topics = FakeTopics(a=2)
    assert subscribed_shapes({"a", "gone"}, context(topics)) == {"a": topics.shape("a")}


def test_an_expression_is_resolved_once_until_topics_change_or_it_is_old() -> None:
    topics = FakeTopics(a1=1, b=1)
    first = resolve({}, {"a.*"}, context(topics))
    assert first == {"a.*": ResolvedRegex(frozenset({"a1"}), 0, NOW_MS)}
    topics.create("a2", 1)
    assert not is_stale(first, context(topics))
    assert resolve(first, {"a.*"}, context(topics)) is first

    changed = context(topics, changed=True)
    assert is_stale(first, changed)
    second = resolve(first, {"a.*"}, changed)
    assert second["a.*"] == ResolvedRegex(frozenset({"a1", "a2"}), 1, NOW_MS)
    assert resolve(second, {"a.*"}, changed) is second, "unchanged topics need no record"

    later = context(topics, now_ms=NOW_MS + 1000, hidden="a1")
    assert is_stale(second, later)
    assert resolve(second, {"a.*"}, later)["a.*"] == ResolvedRegex(frozenset({"a2"}), 2, NOW_MS + 1000)


def test_only_wanted_expressions_are_kept_and_only_new_ones_resolved() -> None:
    topics = FakeTopics(a=1, b=1)
    first = resolve({}, {"a", "b"}, context(topics))
    second = resolve(first, {"b", ".*"}, context(topics, now_ms=NOW_MS + 1))
    assert second.keys() == {"b", ".*"}
    assert second["b"] is first["b"]
    assert not is_stale({}, context(topics, changed=True))


def test_internal_topics_match_as_in_kafka() -> None:
    topics = FakeTopics(__consumer_offsets=1, a=1)
    assert resolve({}, {".*"}, context(topics))[".*"].topics == {"__consumer_offsets", "a"}


def test_the_library_is_loaded_with_the_first_expression() -> None:
    program = (
        "import sys, odradek.app.broker, odradek.coordinator.groups.consumer.subscriptions; print('re2' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert answer.stdout.strip() == "False"
