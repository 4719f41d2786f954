"""Charges the requests of clients with quotas, and mutes clients that exceed them (KIP-13, KIP-124, KIP-219, KIP-599).

The handlers of Produce and Fetch, and the dispatcher for all other requests, ask for the throttle time right before
they encode a response, put it into the response, and call `mute` right after they have sent it. Requests between
brokers are not charged: the callers leave them out.

The time of a request is what the event loop spends on it: until it is answered, until it waits, and for each step
afterwards. It is charged in parts, each when the loop leaves the request or answers it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, fields
from functools import cache, partial
from typing import Any, Final, NamedTuple, cast

from odradek.base.errors import ThrottlingQuotaExceededError
from odradek.base.ports import Clock
from odradek.network.connection import Request
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import Message
from odradek.security.quotas.quota_model import QuotaKind, QuotaTable
from odradek.server.throttling.charges import (
    ByteCharges,
    ChargedRate,
    ConnectionCharges,
    MutationCharges,
    MutationQuota,
    RateCharges,
)

PERCENT_PER_MS: Final = 0.1
"""Percent of one second, as quotas of request time are given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaWindows:
    """The windows in which clients are measured: `quota.window.*` and, for mutations, `controller.quota.window.*`."""

    count: int = 11
    window_ms: int = 1000
    mutations_count: int = 11
    mutations_window_ms: int = 1000


class FetchCharge(NamedTuple):
    """What a Fetch response of a consumer has to say."""

    throttle_ms: int
    must_be_empty: bool
    """Whether the response must not have any record, because none was charged."""


NO_CHARGE: Final = FetchCharge(0, must_be_empty=False)


class ClientThrottle:
    """The use of all quotas of clients on one broker."""

    def __init__(self, table: Callable[[], QuotaTable], clock: Clock, windows: QuotaWindows | None = None) -> None:
        """`table` returns the current quotas."""
        used = windows or QuotaWindows()
        self._table: Final = table
        self._clock: Final = clock

        def bytes_of(kind: QuotaKind) -> ByteCharges:
            return ByteCharges(kind, table, count=used.count, window_ms=used.window_ms)

        self._produce: Final = bytes_of(QuotaKind.PRODUCER_BYTE_RATE)
        self._fetch: Final = bytes_of(QuotaKind.CONSUMER_BYTE_RATE)
        self._time: Final = RateCharges(
            QuotaKind.REQUEST_PERCENTAGE,
            table,
            count=used.count,
            window_ms=used.window_ms,
            at_most_ms=int(used.window_ms),
        )
        self._mutations: Final = MutationCharges(table, count=used.mutations_count, window_ms=used.mutations_window_ms)
        self._connections: Final = ConnectionCharges(table, count=used.count, window_ms=used.window_ms)
        self._running: Request | None = None
        """The request whose handler runs now, if its time is measured."""
        self._since_ms = 0.0
        """The time until which the running request was charged."""

    # Produce and Fetch

    def of_produce(self, request: Request) -> int:
        """Charge a Produce with its size. Returns for how many ms its client has to wait."""
        table = self._table()
        if not table.limits_clients:
            return 0
        user, client_id = client_of(request)
        now_ms = self._clock.monotonic_ms()
        throttle_ms = self._produce.charge(user, client_id, request.size_bytes, now_ms)
        if not table.limits_request_time:
            return throttle_ms
        return max(throttle_ms, self._time.charge(user, client_id, self._spent(request, now_ms), now_ms))

    def largest_fetch(self, request: Request, max_bytes: int) -> int:
        """Return the maximum size of a Fetch response of a consumer: a larger one would make it wait longer."""
        if not self._table().limits_consumers:
            return max_bytes
        most = self._fetch.most(*client_of(request))
        return max_bytes if most is None else max(0, min(max_bytes, int(most)))

    def of_fetch(self, request: Request, size_bytes: int) -> FetchCharge:
        """Charge a Fetch of a consumer with the size of its records, unless it has taken too much before."""
        if not self._table().limits_clients:
            return NO_CHARGE
        user, client_id = client_of(request)
        now_ms = self._clock.monotonic_ms()
        missing_ms = self._fetch.missing_ms(user, client_id, now_ms)
        if missing_ms:
            return FetchCharge(max(missing_ms, self.of_time(request)), must_be_empty=True)
        wait_ms = self._fetch.charge(user, client_id, size_bytes, now_ms)
        return FetchCharge(max(wait_ms, self.of_time(request)), must_be_empty=False)

    # Request time

    @property
    def measures_time(self) -> bool:
        """Whether there is any quota of request time. If not, nothing has to be measured."""
        return self._table().limits_request_time

    def run_direct(self, request: Request, handle: Callable[[Request], None]) -> None:
        """Like `run`, for a handler that answers at once in almost all cases, without an object for the call."""
        self._running, self._since_ms = request, self._clock.monotonic_ms()
        try:
            handle(request)
        finally:
            if self._running is request:
                self.of_time(request)
                self._running = None

    def run(self, request: Request, step: Callable[[], object]) -> object:
        """Call a function that works for a request, and charge the client with the time that it takes."""
        self._running, self._since_ms = request, self._clock.monotonic_ms()
        try:
            return step()
        finally:
            if self._running is request:
                self.of_time(request)
                self._running = None

    async def timed(self, request: Request, work: Awaitable[None]) -> None:
        """Await `work` for a request, and charge the client with the time of each step."""
        await _Timed(partial(self.run, request), work)

    def exempt(self, request: Request) -> None:
        """Do not charge the rest of the running step: the request is from a broker."""
        if self._running is request:
            self._running = None

    def of_time(self, request: Request) -> int:
        """Charge the time of the running step until now. Returns for how many ms the client has to wait."""
        if not self.measures_time:
            return 0
        now_ms = self._clock.monotonic_ms()
        return self._time.charge(*client_of(request), self._spent(request, now_ms), now_ms)

    def _spent(self, request: Request, now_ms: float) -> float:
        """Return the time since the last charge in percent of a second, if the request is running."""
        if self._running is not request:
            return 0.0
        spent_ms, self._since_ms = now_ms - self._since_ms, now_ms
        return spent_ms * PERCENT_PER_MS

    def of_answer(self, request: Request, message: Message) -> tuple[Message, int]:
        """Return the response with its throttle time, and that time in ms: the one of the handler or of request time,
        whichever is longer."""
        if not self._table().limits_clients:
            return message, 0
        of_handler = cast(int, message.get("throttle_time_ms", 0))
        throttle_ms = max(of_handler, self.of_time(request))
        if throttle_ms > of_handler and _has_throttle_time(request.api_key):
            message = {**message, "throttle_time_ms": throttle_ms}
        return message, throttle_ms

    # Mutations

    def mutations(self, user: str, client_id: str | None, *, is_strict: bool) -> RequestMutations:
        """Return what a request may create or delete. `is_strict`: its version knows THROTTLING_QUOTA_EXCEEDED."""
        if not self._table().is_limited(QuotaKind.CONTROLLER_MUTATION_RATE):
            return RequestMutations(None, self._clock)
        charges, owner = self._mutations, (user, client_id or "")
        quota = charges.of_request(*owner, self._clock.monotonic_ms(), is_strict=is_strict)
        return RequestMutations(quota, self._clock, partial(charges.throttled, *owner))

    # Connections

    def of_connection(self, address: str) -> int:
        """Charge an address for a new connection. Returns 0 if it may be opened, otherwise the ms after which to close
        it: a client that is refused at once would try again at once."""
        if not self._table().is_limited(QuotaKind.CONNECTION_CREATION_RATE):
            return 0
        return self._connections.charge(address, self._clock.monotonic_ms())

    # Muting and metrics

    def mute(self, request: Request, throttle_ms: int) -> None:
        """Handle no further request of a connection for a time. Call it right after the request was answered."""
        request.connection.muting.begin(throttle_ms)

    def uses(self) -> dict[str, list[ChargedRate]]:
        """Return the use of all quotas by Kafka's name of what they limit, for metrics."""
        now_ms = self._clock.monotonic_ms()
        return {
            "Produce": self._produce.rates(now_ms),
            "Fetch": self._fetch.rates(now_ms),
            "Request": self._time.rates(now_ms),
            "ControllerMutation": self._mutations.tokens(now_ms),
        }


@cache
def _has_throttle_time(api_key: ApiKey) -> bool:
    """Whether responses of an API have a throttle time, in some version."""
    return any(field.name == "throttle_time_ms" for field in fields(API_TABLE[api_key].response_type))


def client_of(request: Request) -> tuple[str, str]:
    """Return the user and the client id by which a client is charged."""
    return request.identity.principal.name, request.client_id or ""


class RequestMutations:
    """The partitions that one request creates or deletes (KIP-599)."""

    def __init__(
        self, quota: MutationQuota | None, clock: Clock, throttled: Callable[[int, float], None] | None = None
    ) -> None:
        """Without a `quota`, nothing is limited. `throttled` gets the throttle time and the time now."""
        self._quota: Final = quota
        self._clock: Final = clock
        self._throttled: Final = throttled

    def charge(self, partitions: int) -> None:
        """Charge the client right before the change. Raises `ThrottlingQuotaExceededError`: nothing was charged."""
        if self._quota is not None and not self._quota.record(partitions, self._clock.monotonic_ms()):
            raise ThrottlingQuotaExceededError(
                "The quota controller_mutation_rate of the client is exceeded: try again after the throttle time."
            )

    def throttle_ms(self) -> int:
        """Return for how long the client has to wait, for the response."""
        if self._quota is None:
            return 0
        now_ms = self._clock.monotonic_ms()
        throttle_ms = self._quota.throttle_ms(now_ms)
        if throttle_ms and self._throttled is not None:
            self._throttled(throttle_ms, now_ms)
        return throttle_ms


class _Timed(Awaitable[None]):
    """Awaits a coroutine; `run` calls each step of it."""

    def __init__(self, run: Callable[[Callable[[], object]], object], work: Awaitable[None]) -> None:
        self._run = run
        self._work = work

    def __await__(self) -> Generator[Any, Any, None]:
        steps = self._work.__await__()
        step: Callable[[], object] = partial(next, steps)
        while True:
            try:
                waited_for = self._run(step)
            except StopIteration:
                return
            try:
                yield waited_for
            except BaseException as error:  # noqa: BLE001 - the coroutine may handle it, such as a cancellation
                step = partial(steps.throw, error)
            else:
                step = partial(next, steps)
