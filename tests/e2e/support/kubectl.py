"""kubectl as a library that returns parsed objects.

Used by every test. Invariant: the kubeconfig is always passed, so that no test ever uses another cluster than its own.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from support.values import Event, Node, Object, Pod

_CALL_SECONDS: Final = 300.0


class KubectlError(Exception):
    """kubectl failed. The text is its output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubectl:
    """Commands in one namespace, or in all namespaces if `namespace` is empty."""

    program: str
    kubeconfig: Path
    namespace: str = ""

    def within(self, namespace: str) -> Self:
        """Return the same for another namespace."""
        return replace(self, namespace=namespace)

    def run(self, *arguments: str, stdin: str | None = None, seconds: float = _CALL_SECONDS) -> str:
        """Run a command and return its standard output. Raise `KubectlError` if it fails or takes too long."""
        where = ("--namespace", self.namespace) if self.namespace else ()
        command = [self.program, "--kubeconfig", str(self.kubeconfig), *where, *arguments]
        try:
            done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise KubectlError(f"kubectl {' '.join(arguments)}: not done within {seconds:g} s") from error
        if done.returncode != 0:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        """One object, or None if it does not exist."""
        text = self.run("get", kind, name, "--output=json", "--ignore-not-found")
        return json.loads(text) if text.strip() else None

    def require(self, kind: str, name: str) -> dict[str, Any]:
        """One object that must exist. Raise `KubectlError` if it does not."""
        if (found := self.get(kind, name)) is None:
            raise KubectlError(f"there is no {kind} {name} in {self.namespace or 'the cluster'}")
        return found

    def list(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        """The objects of a kind that match a label selector."""
        where = () if self.namespace else ("--all-namespaces",)
        chosen = (f"--selector={selector}",) if selector else ()
        found: list[dict[str, Any]] = json.loads(self.run("get", kind, "--output=json", *where, *chosen))["items"]
        return found

    def pods(self, selector: str = "") -> tuple[Pod, ...]:
        """The pods that match a selector, sorted by namespace and name."""
        return tuple(sorted(map(Pod.parse, self.list("pods", selector)), key=lambda pod: (pod.namespace, pod.name)))

    def pod(self, name: str) -> Pod | None:
        """One pod, or None if it does not exist."""
        found = self.get("pod", name)
        return None if found is None else Pod.parse(found)

    def nodes(self) -> tuple[Node, ...]:
        """All nodes, sorted by name."""
        return tuple(sorted(map(Node.parse, self.list("nodes")), key=lambda node: node.name))

    def events(self) -> tuple[Event, ...]:
        """The events, in the order of the API server."""
        return tuple(map(Event.parse, self.list("events")))

    def apply(self, *objects: Object) -> None:
        """Create or update objects."""
        self.apply_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))

    def apply_text(self, text: str) -> None:
        """Create or update the objects of a YAML text."""
        self.run("apply", "--filename=-", stdin=text)

    def patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        """Merge a change into an object."""
        self.run("patch", kind, name, "--type=merge", f"--patch={json.dumps(change)}")

    def delete(self, kind: str, *names: str, wait: bool = True, force: bool = False) -> None:
        """Delete objects. Objects that do not exist are ignored."""
        now = ("--force", "--grace-period=0") if force else ()
        self.run("delete", kind, *names, "--ignore-not-found", f"--wait={str(wait).lower()}", *now)

    def logs(self, pod: str, container: str = "", *, previous: bool = False, tail: int = -1) -> str:
        """The logs of a container."""
        chosen = (f"--container={container}",) if container else ()
        return self.run("logs", pod, *chosen, f"--previous={str(previous).lower()}", f"--tail={tail}")

    def execute(self, pod: str, *command: str, container: str = "", stdin: str | None = None) -> str:
        """Run a command in a container and return its standard output."""
        chosen = (f"--container={container}",) if container else ()
        given = ("--stdin",) if stdin is not None else ()
        return self.run("exec", pod, *chosen, *given, "--", *command, stdin=stdin)

    def label(self, kind: str, name: str, labels: Iterable[str]) -> None:
        """Set labels (`key=value`) or remove them (`key-`)."""
        self.run("label", kind, name, "--overwrite", *labels)
