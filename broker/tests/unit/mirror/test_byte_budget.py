"""The token bucket of `maxBytesPerSecond`."""

from __future__ import annotations

from odradek.mirror.byte_budget import ByteBudget


def test_without_a_limit_there_is_no_pause() -> None:
    budget = ByteBudget(None, 0)
    budget.spend(1 << 40, 0)
    assert budget.pause_ms(0) == 0


def test_a_large_response_is_paid_for_afterwards() -> None:
    budget = ByteBudget(1_000, 0)
    budget.spend(4_000, 0)
    assert budget.pause_ms(0) == 3_000
    assert budget.pause_ms(1_000) == 2_000
    assert budget.pause_ms(3_000) == 0


def test_at_most_one_second_is_saved_up() -> None:
    budget = ByteBudget(1_000, 0)
    assert budget.pause_ms(60_000) == 0
    budget.spend(2_000, 60_000)
    assert budget.pause_ms(60_000) == 1_000


def test_the_rate_is_kept_over_time() -> None:
    budget, now_ms, sent = ByteBudget(10_000, 0), 0.0, 0
    while now_ms < 100_000:
        budget.spend(3_333, now_ms)
        sent += 3_333
        now_ms += budget.pause_ms(now_ms)
    assert 10_000 * 99 <= sent <= 10_000 * 102
