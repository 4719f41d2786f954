"""Watches the pods of a component, so that a test misses no state however short.

A watch with kubectl and a selector yields `Change`s in order. Pure functions compute from them how many pods were
unavailable at once and in which order pods were replaced. Used by tests of rolling restarts. Invariant: the watch ends
with its `with` block.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from support.kubectl import Kubectl
from support.values import Pod
from support.waiting import eventually


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A pod after a change, or its last state if it was deleted."""

    pod: Pod
    gone: bool

    @property
    def serves(self) -> bool:
        """Return whether the pod is available to others."""
        return self.pod.ready and not self.pod.terminating and not self.gone


def most_away(changes: Iterable[Change]) -> frozenset[str]:
    """The largest set of pods that were unavailable at once, counted from the moment when all were available."""
    serving: dict[str, bool] = {}
    worst: frozenset[str] = frozenset()
    begun = False
    for change in changes:
        serving[change.pod.name] = change.serves
        away = frozenset(name for name, serves in serving.items() if not serves)
        begun = begun or not away
        if begun and len(away) > len(worst):
            worst = away
    return worst


def renewed(changes: Iterable[Change]) -> tuple[str, ...]:
    """The names of the pods that got a new uid, in the order of the change."""
    uids: dict[str, str] = {}
    found = []
    for change in changes:
        before = uids.setdefault(change.pod.name, change.pod.uid)
        if before != change.pod.uid:
            uids[change.pod.name] = change.pod.uid
            found.append(change.pod.name)
    return tuple(found)


class PodWatch:
    """A running watch."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process: Final = process
        self._lock: Final = threading.Lock()
        self._changes: list[Change] = []
        self._thread: Final = threading.Thread(target=self._read, name="pod watch", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:  # kubectl writes each event of a watch on one line
            event = json.loads(line)
            change = Change(pod=Pod.parse(event["object"]), gone=event["type"] == "DELETED")
            with self._lock:
                self._changes.append(change)

    def changes(self) -> tuple[Change, ...]:
        """All changes so far. Raise `AssertionError` if the watch has ended, because later changes would be missing."""
        assert self._process.poll() is None, "the watch of pods ended before its test"
        with self._lock:
            return tuple(self._changes)

    def end(self) -> None:
        """End the watch. It records no later changes."""
        self._process.terminate()
        self._process.wait()
        self._thread.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def pods_watched(kubectl: Kubectl, selector: str, *, count: int) -> Iterator[PodWatch]:
    """Watch pods for the duration of the block, which starts after the watch has reported `count` existing pods."""
    command = [kubectl.program, "--kubeconfig", str(kubectl.kubeconfig), "--namespace", kubectl.namespace]
    command += ["get", "pods", f"--selector={selector}", "--watch", "--output-watch-events", "--output=json"]
    watch = PodWatch(subprocess.Popen(command, stdout=subprocess.PIPE))
    try:
        eventually(
            lambda: {change.pod.name for change in watch.changes()},
            lambda names: len(names) >= count,
            what=f"a watch of {count} pods",
        )
        yield watch
    finally:
        watch.end()
