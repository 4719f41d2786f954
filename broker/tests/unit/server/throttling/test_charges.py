"""Charges of clients: throttle times, who shares a quota, changed quotas, and states that expire."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.security.quotas.quota_model import DEFAULT, QuotaEntity, QuotaKind, QuotaTable
from odradek.security.quotas.rates import MAX_THROTTLE_MS
from odradek.server.throttling.charges import (
    EXPIRY_MS,
    PLACING_MS,
    ByteCharges,
    ChargedRate,
    ConnectionCharges,
    MutationCharges,
    RateCharges,
)

PRODUCE = QuotaKind.PRODUCER_BYTE_RATE
MUTATIONS = QuotaKind.CONTROLLER_MUTATION_RATE
ALICE = QuotaEntity(user="alice")


class Quotas:
    """The quotas of a broker, which change at run time."""

    def __init__(self, entity: QuotaEntity | None = None, value: float = 1000.0) -> None:
        self.table = QuotaTable()
        if entity is not None:
            self.set(entity, value)

    def set(self, entity: QuotaEntity, value: float) -> None:
        self.table = QuotaTable({entity: {PRODUCE: value, MUTATIONS: value}})

    def rates(self, at_most_ms: int = MAX_THROTTLE_MS) -> Rates:
        return Rates(self, RateCharges(PRODUCE, count=11, window_ms=1000, at_most_ms=at_most_ms))

    def bytes(self) -> Bytes:
        return Bytes(self, ByteCharges(PRODUCE, count=11, window_ms=1000))

    def buckets(self) -> MutationCharges:
        return MutationCharges(self, count=11, window_ms=1000)


class Rates:
    """Charges of clients by name. Each has one account, as on one connection, until the quotas change."""

    def __init__(self, quotas: Quotas, charges: Any) -> None:
        self.quotas = quotas
        self.charges = charges
        self.accounts: dict[object, Any] = {}
        self.rates = charges.rates

    def __repr__(self) -> str:
        return repr(self.charges)

    def of(self, *client: str) -> Any:
        key = self.quotas.table, client
        if key not in self.accounts:
            self.accounts[key] = self.charges.of(self.quotas.table, *client)
        return self.accounts[key]

    def charge(self, user: str, client_id: str, amount: float, now_ms: float) -> int:
        charged = self.of(user, client_id)
        return 0 if charged is None else self.charges.charge(charged, amount, now_ms)


class Bytes(Rates):
    """Charges of bytes."""

    def most(self, *client: str) -> float:
        return self.charges.most(self.of(*client))

    def missing_ms(self, user: str, client_id: str, now_ms: float) -> int:
        return self.charges.missing_ms(self.of(user, client_id), now_ms)


def test_a_client_above_its_quota_waits_until_its_rate_is_within_it() -> None:
    charges = Quotas(ALICE).rates()
    assert charges.charge("alice", "app", 10_000, 0) == 0
    assert charges.charge("alice", "app", 5000, 0) == 5000
    assert charges.charge("alice", "app", 0, 4000) == 1000 + 4000, "windows before the first one count as 10 s"
    assert charges.charge("alice", "app", 0, 15_000) == 0


def test_a_throttle_time_has_a_maximum() -> None:
    assert Quotas(ALICE).rates(at_most_ms=1000).charge("alice", "app", 1_000_000, 0) == 1000


def test_bytes_may_be_used_in_a_burst_of_two_windows() -> None:
    charges = Quotas(ALICE).bytes()
    assert charges.most("alice", "app") == 2000.0
    assert charges.charge("alice", "app", 2000, 0) == 0
    assert charges.charge("alice", "app", 500, 0) == 500
    assert charges.missing_ms("alice", "app", 100) == 400
    assert charges.missing_ms("alice", "app", 500) == 0
    assert charges.charge("alice", "app", 2000, 10_000) == 0, "unused bytes of more than two windows are lost"
    assert charges.charge("alice", "app", 1, 10_000) == 1


def test_a_client_that_always_wants_more_gets_its_quota_in_each_interval() -> None:
    charges, now_ms, times = Quotas(ALICE).bytes(), 0.0, list[float]()
    while now_ms < 60_000:
        times.append(now_ms)
        now_ms += max(0.1, charges.charge("alice", "app", 100, now_ms))
    for begin in range(0, 40_000, 700):
        used = 100 * sum(begin <= time < begin + 20_000 for time in times)
        assert 19_500 <= used <= 22_100


def test_an_amount_above_the_burst_passes_and_is_waited_for() -> None:
    charges = Quotas(ALICE).bytes()
    assert charges.charge("alice", "app", 12_000, 0) == 10_000


def test_a_quota_of_zero_throttles_for_all_windows_each_time() -> None:
    quotas = Quotas(ALICE, 0.0)
    charges = quotas.bytes()
    assert charges.missing_ms("alice", "app", 0) == 11_000
    assert charges.charge("alice", "app", 1_000_000, 0) == 11_000
    quotas.set(ALICE, 1000.0)
    assert charges.charge("alice", "app", 2000, 11_000) == 0, "nothing of before is waited for"


def test_the_average_throttle_time_is_that_of_the_last_windows() -> None:
    charges = Quotas(ALICE).rates()
    for amount in (12_000, 2_000):
        charges.charge("alice", "app", amount, 0)
    assert charges.rates(0)[0].throttle_ms == 3000
    assert charges.rates(12_000)[0].throttle_ms == 0


def test_a_client_without_a_quota_has_no_state() -> None:
    for charges in (Quotas(ALICE).rates(), Quotas(ALICE).bytes()):
        assert charges.of("bob", "app") is None
        assert charges.rates(0) == []
        assert repr(charges).endswith("Charges(producer_byte_rate, 0 states)")
    charges = Quotas(ALICE).bytes()
    assert charges.missing_ms("alice", "app", 0) == 0


@pytest.mark.parametrize(
    ("entity", "shares_with", "does_not"),
    [
        (ALICE, ("alice", "tool"), ("bob", "app")),
        (QuotaEntity(user=DEFAULT), ("alice", "tool"), ("bob", "app")),
        (QuotaEntity(client_id=DEFAULT), ("bob", "app"), ("alice", "tool")),
        (QuotaEntity(user=DEFAULT, client_id=DEFAULT), ("alice", "app"), ("alice", "tool")),
    ],
)
def test_clients_share_a_quota_as_in_kafka(
    entity: QuotaEntity, shares_with: tuple[str, str], does_not: tuple[str, str]
) -> None:
    charges = Quotas(entity).rates()
    assert charges.charge("alice", "app", 10_000, 0) == 0
    assert charges.charge(*does_not, 10_000, 0) == 0
    assert charges.charge(*shares_with, 1000, 0) == 1000


def test_bytes_have_a_rate_for_metrics() -> None:
    charges = Quotas(ALICE).bytes()
    charges.charge("alice", "app", 6000, 0)
    assert charges.rates(0) == [ChargedRate("alice", "", 600.0, 4000.0)]


def test_a_changed_quota_applies_to_what_was_charged_before() -> None:
    quotas = Quotas(ALICE)
    charges = quotas.rates()
    assert charges.charge("alice", "app", 10_000, 0) == 0
    quotas.set(ALICE, 500.0)
    assert charges.charge("alice", "app", 0, 0) == 10_000
    quotas.table = QuotaTable()
    assert charges.charge("alice", "app", 10_000, 0) == 0


def test_a_state_expires_an_hour_after_its_last_use() -> None:
    charges = Quotas(QuotaEntity(user=DEFAULT)).rates()
    charges.charge("alice", "app", 1, 0)
    charges.charge("bob", "app", 1, 10)
    charges.charge("alice", "app", 1, PLACING_MS + 20)
    charges.charge("carol", "app", 1, EXPIRY_MS + 9)
    assert [each.user for each in charges.rates(EXPIRY_MS + 9)] == ["bob", "alice", "carol"]
    charges.charge("carol", "app", 1, EXPIRY_MS + PLACING_MS + 9)
    assert [user for user, *_ in charges.rates(EXPIRY_MS + PLACING_MS + 9)] == ["alice", "carol"]
    charges.charge("carol", "app", 1, 3 * EXPIRY_MS)
    assert charges.rates(3 * EXPIRY_MS) == [ChargedRate("carol", "", 0.1)], "its own state has expired as well"


def test_a_strict_quota_refuses_mutations_while_tokens_are_missing() -> None:
    charges = Quotas(ALICE, 2.0).buckets()
    quota = charges.of_request("alice", "app", 0, is_strict=True)
    assert quota is not None
    assert quota.record(30, 0), "a burst of 22, and the last topic may take more"
    assert quota.throttle_ms(0) == 0, "nothing was refused"
    assert not quota.record(1, 0)
    assert quota.throttle_ms(0) == 4000
    assert quota.throttle_ms(1500) == 2500
    assert quota.throttle_ms(9000) == 0
    assert charges.tokens(0) == [ChargedRate("alice", "", -8.0)], "a refused topic takes no tokens"
    later = charges.of_request("alice", "tool", 4000, is_strict=True)
    assert later is not None
    assert later.record(1, 4000)


def test_a_permissive_quota_accepts_everything_and_the_client_waits() -> None:
    charges = Quotas(ALICE, 2.0).buckets()
    quota = charges.of_request("alice", "app", 0, is_strict=False)
    assert quota is not None
    assert quota.record(22, 0)
    assert quota.throttle_ms(0) == 0
    assert quota.record(8, 0)
    assert quota.throttle_ms(0) == 4000
    assert charges.tokens(1000) == [ChargedRate("alice", "", -6.0)]


def test_mutations_without_a_quota_are_not_counted() -> None:
    quotas = Quotas(ALICE, 2.0)
    charges = quotas.buckets()
    assert charges.of_request("bob", "app", 0, is_strict=True) is None
    assert charges.of_request("alice", "app", 0, is_strict=True) is not None
    quotas.table = QuotaTable()
    assert charges.tokens(0) == []
    assert repr(charges) == "MutationCharges(1 states)"


def test_connections_above_the_rate_of_an_address_are_held_and_not_charged() -> None:
    table = QuotaTable({QuotaEntity(ip="10.0.0.1"): {QuotaKind.CONNECTION_CREATION_RATE: 1.0}})
    charges = ConnectionCharges(table, count=11, window_ms=1000)
    assert [charges.charge("10.0.0.1", 0) for _ in range(10)] == [0] * 10
    assert [charges.charge("10.0.0.1", 0) for _ in range(3)] == [1000] * 3
    assert charges.charge("10.0.0.2", 0) == 0
    assert charges.charge("10.0.0.1", 12_000) == 0


def test_the_states_of_many_addresses_are_removed_after_all_windows() -> None:
    table = QuotaTable({QuotaEntity(ip=DEFAULT): {QuotaKind.CONNECTION_CREATION_RATE: 5.0}})
    charges = ConnectionCharges(table, count=11, window_ms=1000)
    for number in range(1000):
        charges.charge(f"10.0.{number // 256}.{number % 256}", 0)
    assert repr(charges) == "ConnectionCharges(1000 states)"
    charges.charge("10.1.0.0", 12_000)
    assert repr(charges) == "ConnectionCharges(1 states)"
