"""Rates, buckets and the choice of a quota against slow oracles."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.security.quotas.quota_model import (
    DEFAULT,
    QuotaEntity,
    QuotaKind,
    QuotaTable,
    desanitized,
    entity_path,
    parse_entity_path,
    sanitized,
)
from odradek.security.quotas.rates import MAX_THROTTLE_MS, Rate, TokenBucket, throttle_ms

WINDOW_MS = 1000
COUNTS = st.integers(1, 5)
AMOUNTS = st.integers(0, 10_000)
EVENTS = st.lists(st.tuples(st.integers(0, 2500), AMOUNTS), max_size=30)
"""Milliseconds since the event before, and an amount."""
NAMES = st.sampled_from(["alice", "bob"])
IDS = st.sampled_from(["app", "tool"])


def timed(events: list[tuple[int, int]]) -> list[tuple[int, int]]:
    now, result = 0, []
    for pause, amount in events:
        now += pause
        result.append((now, amount))
    return result


def windows_of(events: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Group events: a window begins with the first event after the end of the one before."""
    windows: list[list[tuple[int, int]]] = []
    for time, amount in events:
        if not windows or time - windows[-1][0][0] >= WINDOW_MS:
            windows.append([])
        windows[-1].append((time, amount))
    return windows


@given(COUNTS, EVENTS, st.integers(0, 8000))
def test_a_rate_is_that_of_the_windows_with_a_recent_event(
    count: int, events: list[tuple[int, int]], later: int
) -> None:
    times = timed(events)
    now = (times[-1][0] if times else 0) + later
    rate = Rate(count, WINDOW_MS)
    for time, amount in times:
        rate.record(amount, time)
    recent = [window for window in windows_of(times) if now - window[-1][0] < count * WINDOW_MS]
    elapsed = now - recent[0][0][0] if recent else 0
    elapsed = max(elapsed + max(count - 1 - elapsed // WINDOW_MS, 0) * WINDOW_MS, 1)
    assert rate.measured(now)[1] == elapsed
    assert rate.rate(now) == sum(amount for window in recent for _, amount in window) * 1000 / elapsed


@given(COUNTS, EVENTS)
def test_a_rate_that_is_read_all_the_time_counts_recent_events_and_forgets_old_ones(
    count: int, events: list[tuple[int, int]]
) -> None:
    """Reading moves the beginning of windows that have expired, as in Kafka, so the rate has bounds only."""
    rate = Rate(count, WINDOW_MS)
    times = timed(events)
    for number, (now, amount) in enumerate(times):
        rate.record(amount, now)
        total = rate.rate(now) * rate.measured(now)[1] / 1000
        seen = times[: number + 1]
        assert total >= sum(each for time, each in seen if now - time < count * WINDOW_MS) - 1e-6
        assert total <= sum(each for time, each in seen if now - time < (count + 1) * WINDOW_MS) + 1e-6
        assert max(1, (count - 1) * WINDOW_MS) <= rate.measured(now)[1] < (count + 1) * WINDOW_MS


@given(COUNTS, EVENTS, AMOUNTS)
def test_an_amount_can_be_taken_back(count: int, events: list[tuple[int, int]], amount: int) -> None:
    rate, now = Rate(count, WINDOW_MS), 0
    for now, each in timed(events):
        rate.record(each, now)
    before = rate.rate(now)
    rate.record(amount, now)
    rate.record(-amount, now)
    assert rate.rate(now) == before


@given(COUNTS, st.integers(1, 100_000), st.integers(1, 10_000_000))
def test_a_client_that_waits_for_its_throttle_time_is_within_its_limit(count: int, limit: int, amount: int) -> None:
    """If O is the rate over W and T is the limit, then after the wait X: O * W / (W + X) = T."""
    rate = Rate(count, WINDOW_MS)
    rate.record(amount, 0)
    observed, elapsed = rate.rate(0), rate.measured(0)[1]
    wait = throttle_ms(observed, limit, elapsed)
    assert wait == 0 or observed > limit
    if wait < MAX_THROTTLE_MS:
        assert observed * elapsed / (elapsed + wait + 1) <= limit + 1e-6
    if wait > 0:
        assert observed * elapsed / (elapsed + wait - 1) >= limit - 1e-6


def test_throttle_times_as_kafka_computes_them() -> None:
    """Ten windows before the current one count as empty; 11 windows of a second, a limit of 500 bytes per second."""
    rate = Rate(11, 1000)
    rate.record(10_000, 0)
    assert (rate.measured(0)[1], rate.rate(0)) == (10_000, 1000.0)
    assert throttle_ms(rate.rate(0), 500, rate.measured(0)[1]) == 10_000
    assert throttle_ms(rate.rate(0), 500, rate.measured(0)[1], at_most_ms=1000) == 1000
    assert (rate.measured(10_500)[1], rate.rate(10_500)) == (10_500, 10_000_000 / 10_500)
    assert rate.rate(11_000) == 0.0, "the sample has expired"


def test_a_limit_of_zero_throttles_as_long_as_possible() -> None:
    assert throttle_ms(1.0, 0.0, 10_000) == MAX_THROTTLE_MS
    assert throttle_ms(1.0, 0.0, 10_000, at_most_ms=1000) == 1000
    assert throttle_ms(0.0, 0.0, 10_000) == 0


@given(COUNTS, st.integers(1, 50), EVENTS)
def test_a_bucket_has_what_accumulated_less_what_was_taken(
    count: int, rate: int, events: list[tuple[int, int]]
) -> None:
    """The oracle counts in exact fractions."""
    bucket, burst = TokenBucket(count, WINDOW_MS), Fraction(count * rate)
    assert bucket.tokens(rate, 0) == burst
    tokens, times = burst, [(0, 0), *timed(events)]
    for (before, _), (now, amount) in pairwise(times):
        tokens = min(burst, tokens + Fraction(rate * (now - before), 1000))
        assert bucket.tokens(rate, now) == pytest.approx(float(tokens), abs=1e-6)
        tokens -= amount
        wait = float(max(-tokens, Fraction(0)) * 1000 / rate)
        assert abs(bucket.take(amount, rate, now) - min(wait, MAX_THROTTLE_MS)) <= 0.501


def test_a_bucket_follows_a_changed_rate_and_never_has_more_than_its_burst() -> None:
    bucket = TokenBucket(11, 1000)
    assert bucket.tokens(2.0, 5000) == 22.0
    assert bucket.tokens(1.0, 5000) == 11.0
    bucket.take(-5, 1.0, 5000)
    assert bucket.tokens(1.0, 5000) == 11.0
    assert bucket.take(12, 0.0, 5000) == MAX_THROTTLE_MS
    assert bucket.take(0, 0.0, 6000) == MAX_THROTTLE_MS


ENTITIES = st.one_of(
    st.builds(QuotaEntity, user=NAMES | st.just(DEFAULT), client_id=IDS | st.none() | st.just(DEFAULT), ip=st.none()),
    st.builds(QuotaEntity, user=st.none(), client_id=IDS | st.just(DEFAULT), ip=st.none()),
)


@given(st.dictionaries(ENTITIES, AMOUNTS, max_size=8), NAMES, IDS)
def test_the_most_specific_entity_that_matches_applies(
    quotas: dict[QuotaEntity, int], user: str, client_id: str
) -> None:
    """A user by name precedes the default user, which precedes no user; then the same of the client id, but none
    precedes nothing of a user."""

    def rank(entity: QuotaEntity) -> tuple[int, int]:
        return ({user: 0, DEFAULT: 1, None: 2}[entity.user], {client_id: 0, DEFAULT: 1, None: 2}[entity.client_id])

    matching = [
        entity
        for entity in quotas
        if entity.user in (user, DEFAULT, None) and entity.client_id in (client_id, DEFAULT, None)
    ]
    kind = QuotaKind.CONSUMER_BYTE_RATE
    found = QuotaTable({entity: {kind: float(value)} for entity, value in quotas.items()}).client_limit(
        kind, user, client_id
    )
    assert (found is not None) is bool(matching)
    if found is not None:
        best = min(matching, key=rank)
        assert found.value == quotas[best]
        assert (found.user, found.client_id) == (user if best.user else "", client_id if best.client_id else "")


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda name: name not in (".", "..")))
def test_every_name_survives_its_znode(name: str) -> None:
    assert desanitized(sanitized(name)) == name
    for entity in (QuotaEntity(user=name), QuotaEntity(client_id=name), QuotaEntity(user=name, client_id=name)):
        assert parse_entity_path(entity_path(entity)) == entity
