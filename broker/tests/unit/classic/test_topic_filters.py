"""Whitelists and blacklists of topics."""

from __future__ import annotations

import pytest

from odradek.base.errors import ConfigError
from odradek.classic.topic_filters import Blacklist, Whitelist


def test_the_whole_name_has_to_match() -> None:
    chosen = Whitelist("log.*")
    assert chosen.allows("logs", exclude_internal_topics=True)
    assert not chosen.allows("my-logs", exclude_internal_topics=True)


def test_commas_are_alternatives_and_blanks_and_quotes_are_dropped() -> None:
    chosen = Whitelist(' "a, b" ')
    assert chosen.expression == "a|b"
    assert [topic for topic in ("a", "b", "c") if chosen.allows(topic, exclude_internal_topics=True)] == ["a", "b"]


def test_a_blacklist_is_the_opposite() -> None:
    assert not Blacklist("a").allows("a", exclude_internal_topics=True)
    assert Blacklist("a").allows("b", exclude_internal_topics=True)


def test_the_expression_is_one_of_java() -> None:
    assert Whitelist(r"\p{Lower}++-\d{2}").allows("log-42", exclude_internal_topics=True)


def test_internal_topics_are_omitted_if_wanted() -> None:
    for chosen in (Whitelist(".*"), Blacklist("x")):
        assert not chosen.allows("__consumer_offsets", exclude_internal_topics=True)
        assert chosen.allows("__consumer_offsets", exclude_internal_topics=False)


def test_an_invalid_expression_is_refused() -> None:
    with pytest.raises(ConfigError, match="topic filter='\\('"):
        Whitelist("(")
