"""What clients have used of their quotas on this broker, and how long they have to wait when they are above them.

`ByteCharges` are the bytes of Produce or Fetch, `RateCharges` is request time, `MutationCharges` has the token buckets
of controller mutations (KIP-599), and `ConnectionCharges` the connections of IP addresses (KIP-612). Times are
arguments: milliseconds of a clock that does not go back.

A changed quota has an effect at once. Bytes and request time are charged to an `Account`, which is valid as long as its
table is the current one. The others look up the quota at each charge.

Invariants:
- Clients that share a quota share one state, as in Kafka. A client without a quota has no state.
- A state is removed an hour after its last use, that of an address after all windows. A charge removes the expired
  ones, so nothing here needs a timer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Generic, NamedTuple, TypeVar

from odradek.security.quotas.quota_model import QuotaKind, QuotaLimit, QuotaSource, QuotaTable
from odradek.security.quotas.rates import MAX_THROTTLE_MS, Rate, TokenBucket, throttle_ms

EXPIRY_MS: Final = 3_600_000
"""Milliseconds after which an unused state is removed, as in Kafka."""

PLACING_MS: Final = 1_000.0
"""A state that is used all the time is moved behind the others once in this time, which costs more than the rest of a
charge."""

BURST_WINDOWS: Final = 2
"""Number of windows whose bytes a client may use at once."""

_Measure = TypeVar("_Measure")
_Sharers = tuple[str, str]
"""The user and the client id of the clients that share a quota; "" for all."""


class _State(Generic[_Measure]):
    """What the clients that share a quota have used."""

    __slots__ = ("measure", "placed_ms", "throttle_times", "used_ms")

    def __init__(self, measure: _Measure) -> None:
        self.measure: Final[_Measure] = measure
        self.used_ms = 0.0
        """Time of the last use."""
        self.placed_ms = 0.0
        """When it was last moved behind all other states."""
        self.throttle_times: ThrottleTimes | None = None
        """None until a client was throttled."""


class ThrottleTimes:
    """The throttle times of the clients that share a quota, as in Kafka's metric `throttle-time`."""

    __slots__ = ("_count", "_sum")

    def __init__(self, count: int, window_ms: float) -> None:
        """`count` and `window_ms` are those of `Rate`."""
        self._sum: Final = Rate(count, window_ms)
        self._count: Final = Rate(count, window_ms)

    def record(self, throttle_ms: float, now_ms: float) -> None:
        """Add a throttle time."""
        self._sum.record(throttle_ms, now_ms)
        self._count.record(1.0, now_ms)

    def average_ms(self, now_ms: float) -> float:
        """Return the average of the last windows, 0 if there was none."""
        count = self._count.rate(now_ms)
        return self._sum.rate(now_ms) / count if count > 0.0 else 0.0


class Charged(Generic[_Measure]):
    """The quota of a client, and its state once it was charged. Only `RateCharges` and `ByteCharges` look inside."""

    __slots__ = ("limit", "state", "value")

    def __init__(self, limit: QuotaLimit) -> None:
        """Created by `of`."""
        self.limit: Final = limit
        # Each charge needs it, and a field of a named tuple is slow in compiled code.
        self.value: Final = limit.value
        self.state: _State[_Measure] | None = None
        """May have expired: `_States` decides."""


class _States(Generic[_Measure]):
    """The measures of one kind of quota, in the order of their last use, which may be wrong by `PLACING_MS`."""

    def __init__(self, new: Callable[[], _Measure], count: int, window_ms: float, expiry_ms: float = EXPIRY_MS) -> None:
        self._expiry_ms: Final = expiry_ms
        self._new: Final[Callable[[], _Measure]] = new
        self._count: Final = count
        self._window_ms: Final = window_ms
        self._states: Final[dict[_Sharers, _State[_Measure]]] = {}

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[tuple[_Sharers, _State[_Measure]]]:
        return iter(list(self._states.items()))

    def use(self, limit: QuotaLimit, now_ms: float) -> _State[_Measure]:
        """Return the state of a quota, and remove those that have expired."""
        sharers = limit.user, limit.client_id
        states = self._states
        state = states.pop(sharers, None)
        if state is None or now_ms - state.used_ms >= self._expiry_ms:
            state = _State(self._new())
        state.used_ms = state.placed_ms = now_ms
        states[sharers] = state
        while True:
            oldest, other = next(iter(states.items()))
            if now_ms - other.used_ms < self._expiry_ms:
                return state
            del states[oldest]

    def used(self, charged: Charged[_Measure], now_ms: float) -> _State[_Measure]:
        """Return the state of a quota, which is used now."""
        state = charged.state
        if state is None or now_ms - state.placed_ms >= PLACING_MS:
            state = charged.state = self.use(charged.limit, now_ms)
        else:
            state.used_ms = now_ms
        return state

    def find(self, limit: QuotaLimit) -> _State[_Measure] | None:
        """Return the state of a quota, or None. Does not count as a use."""
        return self._states.get((limit.user, limit.client_id))

    def throttled(self, state: _State[_Measure], throttle_ms: float, now_ms: float) -> None:
        """Note the throttle time of a request."""
        if state.throttle_times is None:
            state.throttle_times = ThrottleTimes(self._count, self._window_ms)
        state.throttle_times.record(throttle_ms, now_ms)


class ChargedRate(NamedTuple):
    """The use of a quota, for metrics. `user` and `client_id` are empty as in `QuotaLimit`."""

    user: str
    client_id: str
    rate: float
    """The rate, or the number of tokens."""
    throttle_ms: float = 0.0
    """Average throttle time of the requests that were throttled."""


class RateCharges:
    """Charges of one kind of quota that is a rate per second, measured as in Kafka: request time."""

    def __init__(self, kind: QuotaKind, *, count: int, window_ms: float, at_most_ms: int = MAX_THROTTLE_MS) -> None:
        """`count` and `window_ms` are those of `Rate`. `at_most_ms` limits the throttle time; in Kafka, it is one
        window."""
        self._kind: Final = kind
        self._at_most_ms: Final = at_most_ms
        self._states: Final[_States[Rate]] = _States(lambda: Rate(count, window_ms), count, window_ms)

    def __repr__(self) -> str:
        return f"RateCharges({self._kind.value}, {len(self._states)} states)"

    def of(self, table: QuotaTable, user: str, client_id: str) -> Charged[Rate] | None:
        """Return the quota of a client in a table, or None."""
        limit = table.client_limit(self._kind, user, client_id)
        return None if limit is None else Charged(limit)

    def add(self, charged: Charged[Rate], amount: float, now_ms: float) -> None:
        """Record an amount without an answer that could tell the client to wait."""
        self._states.used(charged, now_ms).measure.record(amount, now_ms)

    def charge(self, charged: Charged[Rate], amount: float, now_ms: float) -> int:
        """Record an amount, and return for how many ms the client has to wait, 0 if it is within its quota."""
        state = self._states.used(charged, now_ms)
        rate = state.measure
        rate.record(amount, now_ms)
        observed, elapsed_ms = rate.measured(now_ms)
        wait_ms = throttle_ms(observed, charged.value, elapsed_ms, at_most_ms=self._at_most_ms)
        if wait_ms:
            self._states.throttled(state, wait_ms, now_ms)
        return wait_ms

    def rates(self, now_ms: float) -> list[ChargedRate]:
        """Return the rate and the throttle times of each state, for metrics."""
        return [
            ChargedRate(user, client_id, state.measure.rate(now_ms), _average_ms(state, now_ms))
            for (user, client_id), state in self._states
        ]


class _Bytes:
    """The bytes of the clients that share a quota: their rate, for metrics, and the tokens that are left."""

    __slots__ = ("bucket", "rate")

    def __init__(self, count: int, window_ms: float) -> None:
        self.rate: Final = Rate(count, window_ms)
        self.bucket: Final = TokenBucket(BURST_WINDOWS, window_ms)


class ByteCharges:
    """Charges of a quota of bytes per second: Produce or Fetch.

    Kafka compares the rate of the last windows with the quota. A client that is much faster than its quota then uses
    what all windows allow at once, and waits until they are over. Here, each byte takes a token. There are at most the
    tokens of two windows, and a request may take more than there are; the client then waits until none is missing. So
    in each interval, a client gets its quota and at most the bytes of two windows and of one request more.
    """

    def __init__(self, kind: QuotaKind, *, count: int, window_ms: float) -> None:
        """`count` and `window_ms` are those of `Rate`."""
        self._kind: Final = kind
        self._burst_s: Final = BURST_WINDOWS * window_ms / 1000.0
        self._longest_ms: Final = int(count * window_ms)
        self._states: Final[_States[_Bytes]] = _States(lambda: _Bytes(count, window_ms), count, window_ms)

    def __repr__(self) -> str:
        return f"ByteCharges({self._kind.value}, {len(self._states)} states)"

    def of(self, table: QuotaTable, user: str, client_id: str) -> Charged[_Bytes] | None:
        """Return the quota of a client in a table, or None."""
        limit = table.client_limit(self._kind, user, client_id)
        return None if limit is None else Charged(limit)

    def charge(self, charged: Charged[_Bytes], amount: float, now_ms: float) -> int:
        """Take an amount, and return for how many ms the client has to wait, 0 if it is within its quota.

        With a quota of 0, that is the time of all windows, so that the client notices within this time if it gets a
        higher quota.
        """
        state, value = self._states.used(charged, now_ms), charged.value
        used = state.measure
        used.rate.record(amount, now_ms)
        wait_ms = used.bucket.take(amount, value, now_ms) if value > 0.0 else self._longest_ms
        if wait_ms:
            self._states.throttled(state, wait_ms, now_ms)
        return wait_ms

    def missing_ms(self, charged: Charged[_Bytes], now_ms: float) -> int:
        """Return for how many ms the client has to wait already, because it has taken too much before."""
        value = charged.value
        if value <= 0.0:
            return self._longest_ms
        state = self._states.find(charged.limit)
        return 0 if state is None else state.measure.bucket.take(0.0, value, now_ms)

    def most(self, charged: Charged[_Bytes]) -> float:
        """Return the largest amount that should be taken at once."""
        return charged.value * self._burst_s

    def rates(self, now_ms: float) -> list[ChargedRate]:
        """Return the rate and the throttle times of each state, for metrics."""
        return [
            ChargedRate(user, client_id, state.measure.rate.rate(now_ms), _average_ms(state, now_ms))
            for (user, client_id), state in self._states
        ]


class Account:
    """The quotas of bytes and of request time of one client, in a table. A kind without a quota is None."""

    __slots__ = ("client_id", "fetch", "produce", "table", "time")

    def __init__(
        self,
        table: QuotaTable,
        client_id: str | None,
        *,
        produce: Charged[_Bytes] | None = None,
        fetch: Charged[_Bytes] | None = None,
        time: Charged[Rate] | None = None,
    ) -> None:
        """`client_id` is that of the requests. The user is known from where the account is kept."""
        self.table: Final = table
        self.client_id: Final = client_id
        self.produce: Final = produce
        self.fetch: Final = fetch
        self.time: Final = time


NO_ACCOUNT: Final = Account(QuotaTable(), None)
"""The account of a client without quotas."""


class ConnectionCharges:
    """New connections of each IP address (KIP-612). A connection above the rate is not charged."""

    def __init__(self, quotas: QuotaSource, *, count: int, window_ms: float) -> None:
        """`count` and `window_ms` are those of `Rate`."""
        self._quotas: Final = quotas
        self._window_ms: Final = window_ms
        # A client can have very many addresses, and after all windows a state is like a new one.
        expiry_ms = (count + 1) * window_ms
        self._states: Final[_States[Rate]] = _States(lambda: Rate(count, window_ms), count, window_ms, expiry_ms)

    def __repr__(self) -> str:
        return f"ConnectionCharges({len(self._states)} states)"

    def charge(self, address: str, now_ms: float) -> int:
        """Return 0 if an address may open a connection now, otherwise the ms after which to close it: one window at
        most. `address` has the form of `normal_address`."""
        limit = self._quotas.table.address_limit(address)
        if limit is None:
            return 0
        state = self._states.use(QuotaLimit(address, "", limit), now_ms)
        rate = state.measure
        rate.record(1.0, now_ms)
        observed, elapsed_ms = rate.measured(now_ms)
        wait_ms = throttle_ms(observed, limit, elapsed_ms, at_most_ms=int(self._window_ms))
        if wait_ms:
            rate.record(-1.0, now_ms)
        return wait_ms


class MutationCharges:
    """The token buckets of controller mutations (KIP-599)."""

    def __init__(self, quotas: QuotaSource, *, count: int, window_ms: float) -> None:
        """`count` and `window_ms` are those of `TokenBucket`."""
        self._quotas: Final = quotas
        self._states: Final[_States[TokenBucket]] = _States(lambda: TokenBucket(count, window_ms), count, window_ms)

    def __repr__(self) -> str:
        return f"MutationCharges({len(self._states)} states)"

    def of_request(self, user: str, client_id: str, now_ms: float, *, is_strict: bool) -> MutationQuota | None:
        """Return what one request of a client may use, or None without a quota.

        `is_strict`: the version of the request knows THROTTLING_QUOTA_EXCEEDED.
        """
        limit = self._quotas.table.client_limit(QuotaKind.CONTROLLER_MUTATION_RATE, user, client_id)
        if limit is None:
            return None
        return MutationQuota(self._states.use(limit, now_ms).measure, limit.value, is_strict=is_strict)

    def throttled(self, user: str, client_id: str, throttle_ms: float, now_ms: float) -> None:
        """Note for how long a client was throttled, for metrics."""
        limit = self._quotas.table.client_limit(QuotaKind.CONTROLLER_MUTATION_RATE, user, client_id)
        state = None if limit is None else self._states.find(limit)
        if state is not None:
            self._states.throttled(state, throttle_ms, now_ms)

    def tokens(self, now_ms: float) -> list[ChargedRate]:
        """Return the tokens of each bucket whose quota still exists, for metrics."""
        table, found = self._quotas.table, []
        for (user, client_id), state in self._states:
            limit = table.client_limit(QuotaKind.CONTROLLER_MUTATION_RATE, user, client_id)
            if limit is not None:
                tokens = state.measure.tokens(limit.value, now_ms)
                found.append(ChargedRate(user, client_id, tokens, _average_ms(state, now_ms)))
        return found


def _average_ms(state: _State[_Measure], now_ms: float) -> float:
    return 0.0 if state.throttle_times is None else state.throttle_times.average_ms(now_ms)


class MutationQuota:
    """The mutations of one request. It is charged for each topic, with the number of partitions.

    A strict one refuses a topic while tokens are missing. A permissive one accepts everything; the client waits after
    the request. Both let a topic take more tokens than there are, so that a large topic can be created at all.
    """

    __slots__ = ("_bucket", "_is_strict", "_rate", "_throttled_ms", "_wait_ms")

    def __init__(self, bucket: TokenBucket, rate: float, *, is_strict: bool) -> None:
        """`rate` is in partitions per second."""
        self._bucket: Final = bucket
        self._rate: Final = rate
        self._is_strict: Final = is_strict
        self._wait_ms = 0
        self._throttled_ms = 0.0
        """When `_wait_ms` was measured."""

    def record(self, partitions: int, now_ms: float) -> bool:
        """Charge mutations. Returns False if they are refused with THROTTLING_QUOTA_EXCEEDED and not charged."""
        bucket, rate = self._bucket, self._rate
        if not self._is_strict:
            self._note(bucket.take(partitions, rate, now_ms), now_ms)
            return True
        if bucket.tokens(rate, now_ms) < 0.0:
            self._note(bucket.take(0.0, rate, now_ms), now_ms)
            return False
        bucket.take(partitions, rate, now_ms)
        return True

    def throttle_ms(self, now_ms: float) -> int:
        """Return how long the client has to wait. It is less if the request has waited since."""
        return max(0, self._wait_ms - int(now_ms - self._throttled_ms)) if self._wait_ms else 0

    def _note(self, wait_ms: int, now_ms: float) -> None:
        if wait_ms:
            self._wait_ms, self._throttled_ms = wait_ms, now_ms
