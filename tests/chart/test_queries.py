"""Tests that placeholders in queries are replaced for each scope, so that a query selects only what it should."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek_operator.dashboards.queries import EVERY, SELECTED, Scope, only

NAMES = st.from_regex(r"[a-z]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
MATCHERS = st.lists(st.sampled_from(['topic!=""', 'quantile="0.99"', 'container="kafka"']), max_size=2, unique=True)


@given(word=st.sampled_from(["SCOPE", "PODS", "CLAIMS", "OPERATED"]), matchers=MATCHERS)
def test_nothing_of_a_placeholder_is_left(word: str, matchers: list[str]) -> None:
    query = f"sum(rate(series{{{', '.join([word, *matchers])}}}[5m]))"
    for scope in (EVERY, SELECTED, Scope(), only("orders", "demo")):
        filled = scope.fill(query)
        assert word not in filled
        assert "{}" not in filled and "{," not in filled and ", }" not in filled and ",}" not in filled
        assert all(matcher in filled for matcher in matchers)


@given(namespace=NAMES, cluster=NAMES)
def test_one_cluster_is_meant_in_its_namespace(namespace: str, cluster: str) -> None:
    scope = only(namespace, cluster)
    for word, label in (("SCOPE", "namespace"), ("CLAIMS", "namespace"), ("OPERATED", "cluster_namespace")):
        filled = scope.fill(f"series{{{word}}}")
        assert filled.startswith(f'series{{{label}="{namespace}", ')
        assert cluster in filled


def test_words_within_others_are_no_placeholders() -> None:
    assert EVERY.fill("up{MY_SCOPE} + SCOPED") == "up{MY_SCOPE} + SCOPED"


def test_all_clusters_are_meant_by_what_tells_them_from_other_objects() -> None:
    assert EVERY.fill("series{SCOPE}") == "series"
    assert EVERY.fill('series{SCOPE, topic=""}') == 'series{topic=""}'
    assert EVERY.fill("series{OPERATED}") == "series"
    assert "persistentvolumeclaim=~" in EVERY.fill("series{CLAIMS}")
