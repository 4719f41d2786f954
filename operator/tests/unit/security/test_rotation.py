"""Replacements of an authority: each step, what they wait for, and that pods accept each other at any time."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from odradek_operator.security.rotation import (
    PodTrust,
    Rotation,
    RotationStep,
    StoredTrust,
    TrustedAuthority,
    next_rotation,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GRACE, RENEWAL = timedelta(days=1), timedelta(days=90)
OLD = TrustedAuthority("old", NOW + timedelta(days=365))
NEW = TrustedAuthority("new", NOW + timedelta(days=3650))


def decided(stored: StoredTrust, *pods: PodTrust, wanted: bool = False, now: datetime = NOW + GRACE) -> Rotation:
    return next_rotation(stored, pods, renewal=RENEWAL, grace=GRACE, is_replacement_wanted=wanted, now=now)


def test_an_authority_is_renewed_before_its_end() -> None:
    stored = StoredTrust((OLD,), "old", NOW)
    assert decided(stored).step is RotationStep.KEEP
    assert decided(stored, now=OLD.expires - RENEWAL).step is RotationStep.RENEW


def test_a_replacement_has_three_steps() -> None:
    pod = PodTrust("kafka-0", frozenset({"old"}), "old")
    assert decided(StoredTrust((OLD,), "old", NOW), pod, wanted=True).step is RotationStep.BEGIN
    begun = StoredTrust((NEW, OLD), "old", NOW)
    assert decided(begun, pod) == Rotation(RotationStep.KEEP, "kafka-0 must trust the new authority")
    ready = replace(pod, trusted=frozenset({"old", "new"}))
    assert "clients have time" in str(decided(begun, ready, now=NOW).waiting)
    assert decided(begun, ready).step is RotationStep.ISSUE
    issued = StoredTrust((NEW, OLD), "new", NOW)
    assert decided(issued, ready) == Rotation(RotationStep.KEEP, "kafka-0 must use its certificate")
    done = replace(ready, signed_by="new")
    assert "clients have time" in str(decided(issued, done, now=NOW).waiting)
    assert decided(issued, done).step is RotationStep.END
    assert decided(StoredTrust((NEW,), "new", NOW), done).step is RotationStep.KEEP


def test_a_pod_that_has_reported_nothing_holds_a_step_back() -> None:
    pods = [PodTrust(f"kafka-{number}") for number in range(5)]
    waiting = decided(StoredTrust((NEW, OLD), "old", NOW), *pods).waiting
    assert waiting == "kafka-0, kafka-1, kafka-2 and 2 more must trust the new authority"


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=60))
def test_pods_accept_each_other_whenever_they_read_their_files(reads: list[tuple[int, bool]]) -> None:
    """Each read is one of a pod: of what it trusts, or of its certificate. The operator decides after each one."""
    pods = [PodTrust(f"kafka-{number}", frozenset({"old"}), "old") for number in range(4)]
    stored = StoredTrust((OLD,), "old", NOW)
    now, wanted = NOW, True
    for number, is_trust in reads:
        now += GRACE
        step = decided(stored, *pods, wanted=wanted, now=now).step
        if step is RotationStep.BEGIN:
            stored, wanted = StoredTrust((NEW, OLD), "old", now), False
        elif step is RotationStep.ISSUE:
            stored = StoredTrust(stored.trusted, "new", now)
        elif step is RotationStep.END:
            stored = StoredTrust((NEW,), "new", now)
        pod = pods[number]
        if is_trust:
            pods[number] = replace(pod, trusted=frozenset(each.fingerprint for each in stored.trusted))
        else:
            pods[number] = replace(pod, signed_by=stored.signing)
        assert all(one.signed_by in other.trusted for one in pods for other in pods)
