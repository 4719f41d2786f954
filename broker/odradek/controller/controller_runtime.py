"""The controller's runtime: the event queue, and this broker's participation in the controller election.

Watches, session events, answers of brokers and calls of request handlers enter the queue, which handles one event at a
time. Every broker has a runtime, and the broker that owns `/controller` also has an `ActiveController`. Invariants: an
error that an event handler does not catch ends the reign but not the runtime; every call of a request handler gets a
result; a call that fails before it changes anything does not end the reign.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from odradek.base.config import BrokerConfig
from odradek.base.errors import (
    KafkaStorageError,
    NotControllerError,
    ProtocolError,
    RequestTimedOutError,
    UnknownServerError,
)
from odradek.base.ports import Clock, Timer
from odradek.base.types import NO_BROKER, NO_EPOCH, TopicPartition
from odradek.controller import controller_election as election
from odradek.controller.active import ActiveController
from odradek.controller.alter_partition import alter_partitions, refused_by_non_controller
from odradek.controller.broker_requests.old_versions import leader_and_isr_errors, stop_replica_errors
from odradek.controller.broker_requests.request_batch import BrokerRequest
from odradek.controller.broker_requests.request_sender import RequestSender
from odradek.controller.context import Replica
from odradek.controller.controller_election import ControllerMovedError
from odradek.controller.elections.candidates import ElectionKind
from odradek.controller.events import (
    Answered,
    BrokersChanged,
    ControllerChanged,
    ControllerState,
    DeletionsChanged,
    DeletionsRetryDue,
    Event,
    IsrNoticesChanged,
    LogDirNoticesChanged,
    PreferredElectionRequested,
    ReassignmentsRequested,
    RebalanceDue,
    SessionEstablished,
    SessionLost,
    TopicChanged,
    TopicsChanged,
    TopicSettingsChanged,
)
from odradek.controller.features import FeatureUpdate
from odradek.controller.reassignment.reassigner import Targets
from odradek.controller.reign import Environment
from odradek.controller.topics.topic_deletion import REASON_FAILED_REPLICA, REASON_SLOW_DISK
from odradek.metrics.quantiles import Quantiles
from odradek.network.broker_channel import Connect
from odradek.protocol.messages.internal import AlterPartitionRequest, LeaderAndIsrResponse, StopReplicaResponse
from odradek.zk import layout
from odradek.zk.layout import ReplicaAssignment
from odradek.zk.port import NotSent, SessionEvent, Watch, ZkClient, ZkError

log = logging.getLogger(__name__)
_T = TypeVar("_T")

RETRY_MS: Final = 1_000
"""Milliseconds between an error that ends a reign and this broker's next attempt to become the controller."""

FIRST_REBALANCE_MS: Final = 5_000

DELETION_RETRY_MS: Final = 1_000
"""Pause before a deletion that a slow disk delays is tried again."""


@dataclass(frozen=True, slots=True, eq=False)
class ControllerCall(Event):
    """A call of a request handler to the active controller. `work` runs in the order of the queue, and `answer` gets
    its result."""

    work: Callable[[ActiveController], Awaitable[Any]]
    answer: asyncio.Future[Any]
    controller_state: ControllerState


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerCounts:
    """Values for metrics. All are 0 on a broker that is not the controller."""

    active_controllers: int = 0
    offline_partitions: int = 0
    preferred_replica_imbalance: int = 0
    topics: int = 0
    partitions: int = 0
    active_brokers: int = 0
    fenced_brokers: int = 0
    topics_to_delete: int = 0
    reassigning_partitions: int = 0
    unclean_elections: int = 0
    """Number of unclean elections since this broker started."""


class ControllerRuntime:
    """The controller of one broker. Call `start` after the broker has registered and `close` before its session
    ends."""

    def __init__(
        self,
        zk: ZkClient,
        clock: Clock,
        config: BrokerConfig,
        *,
        connect: Connect,
        register: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """`connect` opens a connection to a broker. `register` registers this broker again after an expired session."""
        self._dispatcher = RequestSender(
            connect,
            clock,
            listener=config.inter_broker_listener,
            protocol=config.inter_broker_protocol_version,
        )
        self._dispatcher.on_response(lambda request, response: self._post(Answered(request, response)))
        self._environment = Environment(
            zk=zk, clock=clock, config=config, broker_id=config.broker_id, dispatcher=self._dispatcher
        )
        self._zk = zk
        self._clock = clock
        self._register = register
        self._queue: deque[Event] = deque()
        self._queued: set[Event] = set()
        self._wanted = asyncio.Event()
        self._active: ActiveController | None = None
        self._controller_id = NO_BROKER
        self._unclean_elections = 0
        self._watch: Watch | None = None
        self._timers: dict[type[Event], Timer] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self.state = ControllerState.IDLE
        """The activity of the controller, for metrics."""
        self.broker_change_ms: Final = Quantiles()
        """Durations of broker changes in milliseconds, including the elections of new leaders."""

    # For the other parts of the broker

    @property
    def is_active(self) -> bool:
        """Whether this broker believes that it is the controller."""
        return self._active is not None

    @property
    def epoch(self) -> int:
        """The controller epoch of this broker; -1 if it is not the controller."""
        return NO_EPOCH if self._active is None else self._active.reign.epoch

    @property
    def controller_id(self) -> int:
        """The controller according to the last read of `/controller`; -1 if there is none."""
        return self._controller_id

    def counts(self) -> ControllerCounts:
        """Return the values for metrics. Takes time proportional to the number of partitions."""
        if self._active is None:
            return ControllerCounts(unclean_elections=self._unclean_elections)
        context = self._active.context
        return ControllerCounts(
            active_controllers=1,
            offline_partitions=context.offline_partition_count(),
            preferred_replica_imbalance=context.preferred_imbalance_count(),
            topics=len(context.assignments),
            partitions=context.partition_count(),
            active_brokers=len(context.brokers),
            topics_to_delete=len(context.deletions) + len(context.deferred_deletions),
            reassigning_partitions=len(context.reassigning),
            unclean_elections=self._unclean_elections + self._active.reign.unclean_elections,
        )

    async def start(self) -> None:
        """Watch `/controller`, and try to become the controller whenever there is none."""
        self._task = asyncio.create_task(self._run(), name="controller")
        self._zk.on_session(self._session_changed)
        self._watch = self._zk.watch_data(layout.CONTROLLER, lambda: self._post(ControllerChanged()))
        self._post(ControllerChanged())

    async def close(self) -> None:
        """Resign, end all pending calls with an error, and stop. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._watch is not None:
            self._watch.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._step_down("the broker stops")
        self._cancel_timers()
        for event in self._queue:
            if isinstance(event, ControllerCall):
                _refuse(event)
        self._queue.clear()

    async def alter_partition(self, request: AlterPartitionRequest) -> dict[str, object]:
        """Handle an AlterPartition request. Errors are part of the response."""
        try:
            return await self._ask(lambda active: alter_partitions(active.reign, request), ControllerState.ISR_CHANGE)
        except NotControllerError:
            return refused_by_non_controller()

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Move leadership away from a broker that stops. Returns the partitions that it still leads.

        Raises `NotControllerError`, `StaleBrokerEpochError`, `BrokerNotAvailableError`.
        """
        return await self._ask(
            lambda active: active.controlled_shutdown(broker_id, broker_epoch), ControllerState.CONTROLLED_SHUTDOWN
        )

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> tuple[int, int]:
        """Allocate the next block of producer ids to a broker. Returns its first id and its size.

        Raises `NotControllerError`, `StaleBrokerEpochError`, `BrokerIdNotRegisteredError`.
        """
        return await self._ask(lambda active: active.allocate_producer_ids(broker_id, broker_epoch))

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None, kind: ElectionKind
    ) -> dict[TopicPartition, int | ProtocolError]:
        """Elect leaders of partitions, or of all if None. Returns the leader or the error of each.

        Raises `NotControllerError`. When this returns, the brokers may not have answered the requests yet.
        """
        wanted = None if partitions is None else tuple(partitions)
        return await self._ask(
            lambda active: active.elections.elect(wanted, kind), ControllerState.MANUAL_LEADER_BALANCE
        )

    async def alter_reassignments(self, targets: Targets) -> dict[TopicPartition, ProtocolError | None]:
        """Start, replace or (with None) cancel reassignments. Returns the error of each partition.

        Raises `NotControllerError`. Returns when the reassignments have started. `list_reassignments` returns those in
        progress.
        """
        return await self._ask(
            lambda active: active.reassigner.request(targets), ControllerState.ALTER_PARTITION_REASSIGNMENT
        )

    async def list_reassignments(
        self, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, ReplicaAssignment]:
        """Return which of these partitions, or of all if None, are being reassigned. Raises `NotControllerError`."""
        wanted = None if partitions is None else tuple(partitions)

        async def work(active: ActiveController) -> dict[TopicPartition, ReplicaAssignment]:
            return active.reassigner.list(wanted)

        return await self._ask(work, ControllerState.LIST_PARTITION_REASSIGNMENT)

    async def update_features(
        self, updates: Collection[FeatureUpdate], *, validate_only: bool
    ) -> dict[str, ProtocolError | None]:
        """Change finalized features. Returns the error of each.

        Raises `NotControllerError`, and `InvalidRequestError` if features are disabled.
        """
        return await self._ask(
            lambda active: active.update_features(updates, validate_only=validate_only), ControllerState.UPDATE_FEATURES
        )

    def topic_settings_changed(self, topic: str | None) -> None:
        """Handle changed settings of a topic, or of the defaults of all topics if `topic` is None."""
        if self._active is not None:
            self._post(TopicSettingsChanged(topic))

    async def _ask(
        self, work: Callable[[ActiveController], Awaitable[_T]], state: ControllerState = ControllerState.IDLE
    ) -> _T:
        """Call the active controller in the order of the queue. Raises `NotControllerError` on other brokers."""
        if self._active is None or self._closed:
            raise NotControllerError("this broker is not the controller")
        answer: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self._post(ControllerCall(work, answer, state))
        return await answer

    # The queue

    def _post(self, event: Event) -> None:
        """Queue an event unless an equal one is already waiting."""
        if self._closed or event in self._queued:
            return
        self._queue.append(event)
        self._queued.add(event)
        self._wanted.set()

    async def _run(self) -> None:
        while True:
            if not self._queue:
                self._wanted.clear()
                await self._wanted.wait()
            event = self._queue.popleft()
            self._queued.discard(event)
            self.state, began_ms = event.controller_state, self._clock.monotonic_ms()
            await self._handle_safely(event)
            if self.state is ControllerState.BROKER_CHANGE:
                self.broker_change_ms.observe(self._clock.monotonic_ms() - began_ms)
            self.state = ControllerState.IDLE

    async def _handle_safely(self, event: Event) -> None:
        """Handle one event. An error ends the reign; the runtime continues."""
        try:
            await self._handle(event)
        except ControllerMovedError as error:
            await self._step_down(str(error))
            self._post(ControllerChanged())
        except ZkError as error:
            await self._step_down(f"ZooKeeper: {error}")
            self._retry(event)
        except Exception:
            # A bug ends the reign but not the queue. Otherwise this broker could never become the controller again.
            log.exception("the controller failed while it handled %s", type(event).__name__)
            await self._step_down("an unexpected error")
            self._retry(event)
        finally:
            if isinstance(event, ControllerCall):
                _refuse(event)

    def _retry(self, event: Event) -> None:
        again = event if isinstance(event, SessionEstablished) else ControllerChanged()
        self._later(RETRY_MS, again)

    def _later(self, delay_ms: float, event: Event) -> None:
        timer = self._timers.pop(type(event), None)
        if timer is not None:
            timer.cancel()
        self._timers[type(event)] = self._clock.call_later(delay_ms, lambda: self._post(event))

    def _cancel_timers(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    async def _handle(self, event: Event) -> None:
        match event:
            case ControllerChanged():
                await self._controller_changed()
            case SessionEstablished():
                if self._register is not None:
                    await self._register()
                await self._controller_changed()
            case SessionLost():
                await self._step_down("the session expired")
            case _ if self._active is not None:
                await self._handle_as_controller(self._active, event)
                await self._active.settle()

    async def _handle_as_controller(self, active: ActiveController, event: Event) -> None:
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            await handler(active)
            return
        match event:
            case TopicChanged():
                await active.partitions_added(self._take_topics(event))
            case RebalanceDue():
                self._later(self._environment.config.leader_imbalance_check_interval_seconds * 1000, event)
                await active.rebalance_due()
            case DeletionsRetryDue():
                del self._timers[DeletionsRetryDue]
                await active.deleter.retry_slow()
            case TopicSettingsChanged(topic):
                await active.topic_settings_changed(topic)
            case Answered():
                await self._answered(active, event)
            case ControllerCall():
                await _serve(active, event)

    def _take_topics(self, first: TopicChanged) -> list[str]:
        """Remove the next events of this type from the queue, so that their topics are read together."""
        topics = [first.topic]
        while self._queue and isinstance(self._queue[0], TopicChanged):
            event = self._queue.popleft()
            self._queued.discard(event)
            assert isinstance(event, TopicChanged)
            topics.append(event.topic)
        return topics

    # Reigns

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            self._post(SessionLost())
        elif event is SessionEvent.ESTABLISHED:
            self._post(SessionEstablished())

    async def _controller_changed(self) -> None:
        """Read the id of the controller. If there is no controller, try to become it."""
        found = await self._zk.get_or_none(layout.CONTROLLER)
        mine = found is not None and found[1].ephemeral_owner == self._zk.session_id
        if self._active is not None:
            if mine:
                return
            await self._step_down(f"{layout.CONTROLLER} belongs to another broker")
        if found is None or mine:
            await self._become_controller()
        self._controller_id = await election.current_controller(self._zk)

    async def _become_controller(self) -> None:
        election_result = await election.become_controller(self._zk, self._clock, self._environment.broker_id)
        if election_result is None:
            return
        log.info("broker %d is the controller, with epoch %d", self._environment.broker_id, election_result.epoch)
        self._drop_events_of_reign()
        self._active = ActiveController(self._environment, election_result, self._post)
        self._controller_id = self._environment.broker_id
        await self._active.start()
        if self._environment.config.auto_leader_rebalance_enable:
            self._later(FIRST_REBALANCE_MS, RebalanceDue())

    async def _step_down(self, reason: str) -> None:
        """End the reign, if there is one, first in memory and then in ZooKeeper."""
        active, self._active = self._active, None
        if active is None:
            return
        log.info(
            "broker %d is no longer the controller of epoch %d: %s",
            self._environment.broker_id,
            active.reign.epoch,
            reason,
        )
        self._unclean_elections += active.reign.unclean_elections
        active.stop()
        for timer in (self._timers.pop(RebalanceDue, None), self._timers.pop(DeletionsRetryDue, None)):
            if timer is not None:
                timer.cancel()
        await self._dispatcher.close()
        self._drop_events_of_reign()
        self._controller_id = NO_BROKER
        try:
            await election.resign(self._zk)
        except ZkError as error:
            # Without a connection, the znode remains until the session ends or this broker takes part in an election
            # again.
            log.warning("cannot delete %s: %s", layout.CONTROLLER, error)

    def _drop_events_of_reign(self) -> None:
        """Drop the events of the reign that ended. The next reign reads the whole state again."""
        kept = [event for event in self._queue if isinstance(event, (ControllerCall, *_OUTSIDE_REIGN))]
        self._queue = deque(kept)
        self._queued = set(kept)

    async def _answered(self, active: ActiveController, event: Answered) -> None:
        request, response = event.request, event.response
        live = active.context.brokers.get(request.broker)
        if live is None or live.epoch != request.broker_epoch:
            return
        if response.error_code:
            log.warning("broker %d refused %s: error %d", request.broker, request.api_key.name, response.error_code)
        if isinstance(response, StopReplicaResponse):
            await self._replicas_stopped(active, request, response)
        elif isinstance(response, LeaderAndIsrResponse) and not response.error_code:
            errors = leader_and_isr_errors(response, active.context.topic_names)
            failed = {part for part, code in errors.items() if code == KafkaStorageError.code}
            if failed or active.context.offline_directory_replicas:
                await active.replicas_failed(
                    [Replica(part, request.broker) for part in failed],
                    [Replica(part, request.broker) for part, code in errors.items() if not code],
                )

    async def _replicas_stopped(
        self, active: ActiveController, request: BrokerRequest, response: StopReplicaResponse
    ) -> None:
        errors = stop_replica_errors(response, request.deleting)
        deleted, slow, failed = list[Replica](), list[Replica](), list[Replica]()
        for part, code in errors.items():
            outcome = deleted if not code else slow if code == RequestTimedOutError.code else failed
            outcome.append(Replica(part, request.broker))
        if failed:
            await active.deleter.fail(failed, REASON_FAILED_REPLICA)
        if slow:
            await active.deleter.fail(slow, REASON_SLOW_DISK)
            if DeletionsRetryDue not in self._timers:
                self._later(DELETION_RETRY_MS, DeletionsRetryDue())
        if deleted:
            await active.deleter.complete(deleted)
        active.reign.flush()


_OUTSIDE_REIGN: Final = (ControllerChanged, SessionEstablished, SessionLost)

_HANDLERS: Final[dict[type[Event], Callable[[ActiveController], Coroutine[Any, Any, None]]]] = {
    BrokersChanged: ActiveController.brokers_changed,
    TopicsChanged: ActiveController.topics_changed,
    DeletionsChanged: ActiveController.deletions_changed,
    PreferredElectionRequested: ActiveController.preferred_election_requested,
    ReassignmentsRequested: ActiveController.reassignments_requested,
    IsrNoticesChanged: ActiveController.isr_notices_changed,
    LogDirNoticesChanged: ActiveController.log_dir_notices_changed,
}


async def _serve(active: ActiveController, event: ControllerCall) -> None:
    """Run a call and set its result. Raises errors that must end the reign.

    A protocol error is a result. Any other error before the first change only makes the call fail: otherwise the client
    would send the same request to the next controller and end one reign after another. After the first change, the
    context may differ from ZooKeeper, so the reign must end. In both cases the client gets an error that it does not
    retry. If ZooKeeper does not answer, or another broker has become the controller, this broker cannot be the
    controller, and the client sends the request to the next one.
    """
    changes = active.reign.changes
    try:
        outcome = await event.work(active)
    except ProtocolError as error:
        _fail(event, error)
    except NotSent as error:
        if active.reign.changes != changes:
            raise
        _fail(event, error)
    except (ZkError, ControllerMovedError):
        raise
    except Exception:
        # It is a bug. The client gets an error, and the log has the details.
        _fail(event, UnknownServerError("The controller failed to handle the request: see its log."))
        if active.reign.changes != changes:
            raise
        log.exception("a request failed before it changed anything; this broker remains the controller")
    else:
        if not event.answer.done():
            event.answer.set_result(outcome)


def _fail(event: ControllerCall, error: Exception) -> None:
    if not event.answer.done():
        event.answer.set_exception(error)


def _refuse(event: ControllerCall) -> None:
    """End a call that has no result yet: this broker is not the controller."""
    if not event.answer.done():
        event.answer.set_exception(NotControllerError("this broker is not the controller"))
