"""When a certificate authority is renewed or replaced, and the steps of a replacement. Pure.

A renewal keeps the key, so it changes nothing for what the authority has signed. A replacement has a new key, and takes
three steps, because pods and clients take over files at different times:

1. BEGIN: the old and the new authority are trusted. The old one signs.
2. ISSUE: when every pod trusts the new one, and clients had the time to read it, the new one signs.
3. END: when every pod has a certificate of the new one, and clients had the same time again, the old one is not trusted
   any more.

Invariant: at any time, each pod trusts the authority that has signed the certificate of every other pod. A pod that has
reported nothing yet, such as one that starts, holds the next step back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum


class RotationStep(Enum):
    """What to do with an authority now."""

    KEEP = "keep"
    RENEW = "renew"
    """Make a certificate with the same key."""
    BEGIN = "begin"
    """Make an authority with a new key, and trust it as well."""
    ISSUE = "issue"
    """Sign with the newest authority."""
    END = "end"
    """Trust the newest authority only."""


@dataclass(frozen=True, slots=True)
class TrustedAuthority:
    """An authority that is trusted."""

    fingerprint: str
    expires: datetime


@dataclass(frozen=True, slots=True)
class StoredTrust:
    """What the Secrets of one authority have."""

    trusted: tuple[TrustedAuthority, ...]
    """At least one; the newest first."""
    signing: str
    """The fingerprint of the one that signs. It is one of `trusted`."""
    changed: datetime
    """When the Secrets were last changed by a step."""


@dataclass(frozen=True, slots=True)
class PodTrust:
    """What a pod says that it uses."""

    name: str
    trusted: frozenset[str] = frozenset()
    """Fingerprints of the authorities that it trusts. Empty: it has reported nothing yet."""
    signed_by: str = ""
    """The fingerprint of the authority of its certificate."""


@dataclass(frozen=True, slots=True)
class Rotation:
    """The next step, and what a replacement waits for before it."""

    step: RotationStep
    waiting: str | None = None


def next_rotation(
    stored: StoredTrust,
    pods: Sequence[PodTrust],
    *,
    renewal: timedelta,
    grace: timedelta,
    is_replacement_wanted: bool,
    now: datetime,
) -> Rotation:
    """Return what to do now.

    `renewal`: how long before its end an authority is renewed. `grace`: the time that clients have to read an authority
    before it signs, and that they keep the old one. `is_replacement_wanted` is a request that was not carried out yet.
    """
    newest, *older = stored.trusted
    if stored.signing != newest.fingerprint:
        behind = [pod.name for pod in pods if newest.fingerprint not in pod.trusted]
        return _when_all(RotationStep.ISSUE, stored, behind, "trust the new authority", grace=grace, now=now)
    if older:
        behind = [pod.name for pod in pods if pod.signed_by != newest.fingerprint]
        return _when_all(RotationStep.END, stored, behind, "use its certificate", grace=grace, now=now)
    if is_replacement_wanted:
        return Rotation(RotationStep.BEGIN)
    return Rotation(RotationStep.RENEW if newest.expires - now <= renewal else RotationStep.KEEP)


def _when_all(
    step: RotationStep, stored: StoredTrust, behind: Sequence[str], what: str, *, grace: timedelta, now: datetime
) -> Rotation:
    if behind:
        shown = ", ".join(sorted(behind)[:3])
        more = f" and {len(behind) - 3} more" if len(behind) > 3 else ""
        return Rotation(RotationStep.KEEP, f"{shown}{more} must {what}")
    until = stored.changed + grace
    if now < until:
        return Rotation(RotationStep.KEEP, f"clients have time to read the authorities until {until:%Y-%m-%d %H:%M}")
    return Rotation(step)
