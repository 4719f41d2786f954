"""Pods of one kind as they change, by a watch: no state that was there for a moment is missed.

Enters: kubectl and a selector. Leaves: `Change`s in their order, and what they say: how many pods were away at once, in
which order they came anew (both pure). Called by tests of rolls. Invariant: the watch ends with its `with` block.
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
    """A pod as it came to be, or as it was when it went."""

    pod: Pod
    gone: bool

    @property
    def serves(self) -> bool:
        """Whether the pod is there for others."""
        return self.pod.ready and not self.pod.terminating and not self.gone


def most_away(changes: Iterable[Change]) -> frozenset[str]:
    """The most pods that did not serve at one time, of all that were named, from when all had served."""
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
    """Names of pods in the order in which they came with a new uid."""
    uids: dict[str, str] = {}
    found = []
    for change in changes:
        before = uids.setdefault(change.pod.name, change.pod.uid)
        if before != change.pod.uid:
            uids[change.pod.name] = change.pod.uid
            found.append(change.pod.name)
    return tuple(found)


class PodWatch:
    """A watch under way."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process: Final = process
        self._lock: Final = threading.Lock()
        self._changes: list[Change] = []
        self._thread: Final = threading.Thread(target=self._read, name="pod watch", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:  # kubectl writes each event of a watch as one line
            event = json.loads(line)
            change = Change(pod=Pod.parse(event["object"]), gone=event["type"] == "DELETED")
            with self._lock:
                self._changes.append(change)

    def changes(self) -> tuple[Change, ...]:
        """All so far. Raises `AssertionError` if the watch has ended: later ones would be missing."""
        assert self._process.poll() is None, "the watch of pods ended before its test"
        with self._lock:
            return tuple(self._changes)

    def end(self) -> None:
        """End it; nothing is heard afterwards."""
        self._process.terminate()
        self._process.wait()
        self._thread.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def pods_watched(kubectl: Kubectl, selector: str, *, count: int) -> Iterator[PodWatch]:
    """A watch for the length of a block, begun when it has told of `count` pods that are there."""
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
