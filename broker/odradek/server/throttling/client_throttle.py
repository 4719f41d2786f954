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
from typing import Any, Final, NamedTuple, TypeVar, cast

from odradek.base.errors import ThrottlingQuotaExceededError
from odradek.base.ports import Clock
from odradek.network.connection import Request
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import Message
from odradek.security.quotas.quota_model import QuotaKind, QuotaSource, QuotaTable
from odradek.server.client_memo import memo_of
from odradek.server.throttling.charges import (
    NO_ACCOUNT,
    Account,
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


_Argument = TypeVar("_Argument")

NO_CHARGE: Final = FetchCharge(0, must_be_empty=False)


class ClientThrottle:
    """The use of all quotas of clients on one broker."""

    def __init__(self, quotas: QuotaSource, clock: Clock, windows: QuotaWindows | None = None) -> None:
        """Create it without any use."""
        used = windows or QuotaWindows()
        self._quotas: Final = quotas
        self._clock: Final = clock

        def bytes_of(kind: QuotaKind) -> ByteCharges:
            return ByteCharges(kind, count=used.count, window_ms=used.window_ms)

        self._produce: Final = bytes_of(QuotaKind.PRODUCER_BYTE_RATE)
        self._fetch: Final = bytes_of(QuotaKind.CONSUMER_BYTE_RATE)
        self._time: Final = RateCharges(
            QuotaKind.REQUEST_PERCENTAGE,
            count=used.count,
            window_ms=used.window_ms,
            at_most_ms=int(used.window_ms),
        )
        self._mutations: Final = MutationCharges(quotas, count=used.mutations_count, window_ms=used.mutations_window_ms)
        self._connections: Final = ConnectionCharges(quotas, count=used.count, window_ms=used.window_ms)
        self._running: Request | None = None
        """The request whose handler runs now, if its time is measured."""
        self._charged = NO_ACCOUNT
        """The account of the running request."""
        self._since_ms = 0.0
        """The time until which the running request was charged."""

    def _account(self, request: Request, table: QuotaTable) -> Account:
        """Return the quotas of the client of a request. They are looked up for the first request of a connection, and
        again after a change of the quotas or of the client id."""
        if self._running is request and self._charged.table is table:
            return self._charged
        memo, client_id = memo_of(request), request.client_id
        account = memo.account
        if account is None or account.table is not table or account.client_id != client_id:
            who = memo.identity.principal.name, client_id or ""
            account = memo.account = Account(
                table,
                client_id,
                produce=self._produce.of(table, *who),
                fetch=self._fetch.of(table, *who),
                time=self._time.of(table, *who),
            )
        return account

    @property
    def limits_clients(self) -> bool:
        """Whether there is any quota of clients. If not, no request has to be charged."""
        return self._quotas.table.limits_clients

    # Produce and Fetch

    def of_produce(self, request: Request) -> int:
        """Charge a Produce with its size. Returns for how many ms its client has to wait."""
        table = self._quotas.table
        if not table.limits_clients:
            return 0
        account = self._account(request, table)
        if account.produce is None and account.time is None:
            return 0
        now_ms, wait_ms = self._clock.monotonic_ms(), 0
        if account.produce is not None:
            wait_ms = self._produce.charge(account.produce, request.size_bytes, now_ms)
        if account.time is not None:
            wait_ms = max(wait_ms, self._time.charge(account.time, self._spent(request, now_ms), now_ms))
        return wait_ms

    def largest_fetch(self, request: Request, max_bytes: int) -> int:
        """Return the maximum size of a Fetch response of a consumer: a larger one would make it wait longer."""
        table = self._quotas.table
        if not table.limits_consumers:
            return max_bytes
        charged = self._account(request, table).fetch
        return max_bytes if charged is None else max(0, min(max_bytes, int(self._fetch.most(charged))))

    def of_fetch(self, request: Request, size_bytes: int) -> FetchCharge:
        """Charge a Fetch of a consumer with the size of its records, unless it has taken too much before."""
        table = self._quotas.table
        if not table.limits_clients:
            return NO_CHARGE
        account = self._account(request, table)
        if account.fetch is None and account.time is None:
            return NO_CHARGE
        now_ms, wait_ms, must_be_empty = self._clock.monotonic_ms(), 0, False
        if account.fetch is not None:
            wait_ms = self._fetch.missing_ms(account.fetch, now_ms)
            must_be_empty = wait_ms > 0
            if not must_be_empty:
                wait_ms = self._fetch.charge(account.fetch, size_bytes, now_ms)
        if account.time is not None:
            wait_ms = max(wait_ms, self._time.charge(account.time, self._spent(request, now_ms), now_ms))
        return FetchCharge(wait_ms, must_be_empty)

    # Request time

    @property
    def measures_time(self) -> bool:
        """Whether there is any quota of request time. If not, nothing has to be measured."""
        return self._quotas.table.limits_request_time

    def run(self, request: Request, step: Callable[[_Argument], object], argument: _Argument) -> object:
        """Call a function that works for a request. If its client has a quota of request time, charge it with the time
        that this takes."""
        table = self._quotas.table
        account = self._account(request, table) if table.limits_request_time else NO_ACCOUNT
        charged = account.time
        if charged is None:
            return step(argument)
        self._running, self._charged, self._since_ms = request, account, self._clock.monotonic_ms()
        try:
            return step(argument)
        finally:
            if self._is_running(request):
                now_ms = self._clock.monotonic_ms()
                self._time.add(charged, self._spent(request, now_ms), now_ms)
                self._running = None

    async def timed(self, request: Request, work: Awaitable[None]) -> None:
        """Await `work` for a request, and charge the client with the time of each step."""
        await _Timed(self, request, work)

    def exempt(self, request: Request) -> None:
        """Do not charge the rest of the running step: the request is from a broker."""
        if self._is_running(request):
            self._running = None

    def _is_running(self, request: Request) -> bool:
        """Whether the running step is one of a request. A method, because the type checker, and with it the compiled
        core, takes for granted that the attribute still has the value that `run` has assigned."""
        return self._running is request

    def _spent(self, request: Request, now_ms: float) -> float:
        """Return the time since the last charge in percent of a second, if the request is running."""
        if not self._is_running(request):
            return 0.0
        spent_ms, self._since_ms = now_ms - self._since_ms, now_ms
        return spent_ms * PERCENT_PER_MS

    def of_answer(self, request: Request, message: Message) -> tuple[Message, int]:
        """Return the response with its throttle time, and that time in ms: the one of the handler or of request time,
        whichever is longer."""
        table = self._quotas.table
        if not table.limits_clients:
            return message, 0
        of_handler = cast(int, message.get("throttle_time_ms", 0))
        throttle_ms = max(of_handler, self.of_time(request))
        if throttle_ms > of_handler and _has_throttle_time(request.api_key):
            message = {**message, "throttle_time_ms": throttle_ms}
        return message, throttle_ms

    def of_time(self, request: Request) -> int:
        """Charge the time of a request. Returns for how many ms its client has to wait."""
        table = self._quotas.table
        charged = self._account(request, table).time if table.limits_clients else None
        if charged is None:
            return 0
        now_ms = self._clock.monotonic_ms()
        return self._time.charge(charged, self._spent(request, now_ms), now_ms)

    # Mutations

    def mutations(self, user: str, client_id: str | None, *, is_strict: bool) -> RequestMutations:
        """Return what a request may create or delete. `is_strict`: its version knows THROTTLING_QUOTA_EXCEEDED."""
        if not self._quotas.table.is_limited(QuotaKind.CONTROLLER_MUTATION_RATE):
            return RequestMutations(None, self._clock)
        charges, owner = self._mutations, (user, client_id or "")
        quota = charges.of_request(*owner, self._clock.monotonic_ms(), is_strict=is_strict)
        return RequestMutations(quota, self._clock, partial(charges.throttled, *owner))

    # Connections

    def of_connection(self, address: str) -> int:
        """Charge an address for a new connection. Returns 0 if it may be opened, otherwise the ms after which to close
        it: a client that is refused at once would try again at once."""
        if not self._quotas.table.is_limited(QuotaKind.CONNECTION_CREATION_RATE):
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
    """Awaits a coroutine for a request; each step of it is charged."""

    def __init__(self, throttle: ClientThrottle, request: Request, work: Awaitable[None]) -> None:
        self._throttle: Final = throttle
        self._request: Final = request
        self._work: Final = work

    def __await__(self) -> Generator[Any, Any, None]:
        throttle, request, steps = self._throttle, self._request, self._work.__await__()
        error: BaseException | None = None
        while True:
            try:
                if error is None:
                    waited_for = throttle.run(request, next, steps)
                else:
                    waited_for = throttle.run(request, steps.throw, error)
            except StopIteration:
                return
            try:
                yield waited_for
            except BaseException as caught:  # noqa: BLE001 - the coroutine may handle it, such as a cancellation
                error = caught
            else:
                error = None
