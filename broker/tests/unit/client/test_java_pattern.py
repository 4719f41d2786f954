"""Regular expressions of Java: what they match among the names of topics, and which are refused.

`tests/interop/test_java_patterns.py` compares these patterns and random ones with Java itself.
"""

from __future__ import annotations

import pytest

from odradek.base.errors import ConfigError
from odradek.client.java_regex.java_pattern import compile_pattern

NAMES = "a aab AAB log my-log-1 Log.x orders.v2 a_b _x 7 a.b".split()


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("log", "log my-log-1"),
        ("^log$", "log"),
        (r"\Alog\z", "log"),
        ("(?i)LOG$", "log"),
        ("a(?i)B|L", "aab log my-log-1 Log.x"),
        ("a++b", "aab"),
        ("(?>a+)ab", ""),
        (r"^\p{Lu}+$", "AAB"),
        (r"^\p{Alpha}+$", "a aab AAB log"),
        (r"\p{Punct}", "my-log-1 Log.x orders.v2 a_b _x a.b"),
        (r"^\P{L}$", "7"),
        (r"\Qa.b\E", "a.b"),
        (r"(?<first>[a-z])\k<first>", "aab"),
        (r"(a)\1", "aab"),
        ("^[a-z&&[^a]]+$", "log"),
        ("^[^a-z]+$", "AAB 7"),
        ("(?i)^[^a-z]+$", "7"),
        (r"^[\w&&[^\d]]{1,3}$", "a aab AAB log a_b _x"),
        (r"\x61\u0061", "aab"),
        ("(?x) l o g # a comment", "log my-log-1"),
        ("(?<=l)o(?!g-)", "log"),
        (r"\h", ""),
        ("(?:(a)|(b))*+$", " ".join(NAMES)),
        ("ä?7", "7"),
        (r"^\R|\X7", ""),
        ("", " ".join(NAMES)),
    ],
)
def test_what_a_pattern_finds(pattern: str, found: str) -> None:
    compiled = compile_pattern("subscribePattern", pattern)
    assert [name for name in NAMES if compiled.search(name)] == found.split()


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", r"'\)' is missing"),
        ("a)", r"unmatched '\)'"),
        ("[a", r"'\]' is missing"),
        ("*", "nothing to repeat"),
        ("a{2,1}", "a maximum below its minimum"),
        ("a{", "nothing to repeat"),
        ("[z-a]", "backwards"),
        ("\\", "ends too early"),
        (r"\j", r"\\j is not supported"),
        (r"\p{Greek}", "the property 'Greek' is not supported"),
        (r"\p{InGreek}", "the property 'InGreek' is not supported"),
        (r"\b{g}", "is not supported"),
        (r"\1(a)", "there is no group 1"),
        (r"\k<x>", "there is no group 'x'"),
        ("(?<a>x)(?<a>y)", "exists twice"),
        ("(?q)", "not a group or flag"),
        (r"(a)++\1", "beside a back reference"),
        (r"(?>a)(b)\1", "beside a back reference"),
        ("(?<=lo?)g", "look-behind requires fixed-width pattern"),
        ("[a&&]", "is empty"),
        (r"\x{110000}", "there is no character"),
        ("(" * 5000, "."),
    ],
)
def test_what_is_refused_with_the_reason(pattern: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=rf"subscribePattern=(?s:.*) is not allowed: .*{reason}"):
        compile_pattern("subscribePattern", pattern)
