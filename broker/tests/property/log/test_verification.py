"""No transaction opens in a log without a verification that began after the last marker of its producer.

Producers verify, append with any guard that they ever got, and end transactions, in any order, also after restarts.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from odradek.base.errors import InvalidTransactionStateError
from odradek.log.producers.verification import VerificationGuard
from odradek.records.checks.validate import AppendOrigin
from odradek.records.v2.batch import ControlType
from odradek_testkit.disk import MemoryFiles
from odradek_testkit.logs import batch, marker, open_log
from odradek_testkit.loop import ManualClock

PRODUCERS = st.integers(1, 2)
EXPIRATION_MS = 1000


class GuardedLog(RuleBasedStateMachine):
    """A log and a model of its open transactions and current guards."""

    @initialize()
    def start(self) -> None:
        self.files, self.clock = MemoryFiles(), ManualClock()
        self.log = open_log(self.files, self.clock)
        self.open: set[int] = set()
        self.current: dict[int, VerificationGuard] = {}
        self.begun: dict[int, float] = {}
        self.sequences = {1: 0, 2: 0}
        self.issued: list[VerificationGuard] = []

    @rule(producer=PRODUCERS)
    def verify(self, producer: int) -> None:
        guard = self.log.begin_verification(producer, 0, self.sequences[producer])
        if producer in self.open:
            assert guard is None
            return
        assert guard is not None
        if producer in self.current:
            assert guard is self.current[producer]
        else:
            assert all(guard is not earlier for earlier in self.issued), "a guard is never used for two verifications"
            self.issued.append(guard)
            self.current[producer] = guard
            self.begun[producer] = self.clock.wall_ms()

    @rule(producer=PRODUCERS, choice=st.integers(0, 1 << 16), none=st.booleans())
    def append(self, producer: int, choice: int, none: bool) -> None:
        guard = None if none or not self.issued else self.issued[-1 - choice % min(4, len(self.issued))]
        may_append = producer in self.open or (guard is not None and self.current.get(producer) is guard)
        records = batch(
            b"v",
            producer_id=producer,
            producer_epoch=0,
            base_sequence=self.sequences[producer],
            is_transactional=True,
        )
        before = self.log.log_end_offset
        try:
            self.log.append_as_leader(records, leader_epoch=0, guard=guard, needs_guard=True)
        except InvalidTransactionStateError:
            assert not may_append
            assert self.log.log_end_offset == before
            return
        assert may_append
        self.sequences[producer] += 1
        self.open.add(producer)
        self.current.pop(producer, None)

    @rule(producer=PRODUCERS, kind=st.sampled_from(ControlType))
    def end(self, producer: int, kind: ControlType) -> None:
        if all(producer != known.producer_id for known in self.log.active_producers()):
            # The log has forgotten the producer. After the marker, it knows its epoch but no batch, as in Kafka.
            self.sequences[producer] = 0
        self.log.append_as_leader(marker(kind, producer_id=producer), leader_epoch=0, origin=AppendOrigin.COORDINATOR)
        self.open.discard(producer)
        self.current.pop(producer, None)

    @rule(elapsed_ms=st.integers(1, EXPIRATION_MS))
    def expire(self, elapsed_ms: int) -> None:
        self.clock.advance(elapsed_ms)
        now_ms = self.clock.wall_ms()
        self.log.expire_producers(now_ms, EXPIRATION_MS)
        for producer in [each for each in self.current if now_ms - self.begun[each] >= EXPIRATION_MS]:
            del self.current[producer]

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.log = open_log(self.files, self.clock, clean=True)
        self.current.clear()


TestGuardedLog = GuardedLog.TestCase
