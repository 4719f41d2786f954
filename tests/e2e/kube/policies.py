"""Enforces NetworkPolicies on the nodes, which the bridge plugin does not do, with rules of nftables.

`enforced` applies the policies that exist at its beginning to the pods that run then. It is no controller: pods that
start later are not restricted. It knows what this project uses: incoming connections, TCP ports by number, and peers
selected by labels of pods and namespaces or by address blocks. Anything else is an error, so that no policy is enforced
by half. Invariant: whatever ends the block, the rules are gone.

Only the packet that opens a connection is judged, at the node of the pod that it goes to: routed packets in the family
`inet`, those of pods of the same node in the family `bridge`.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kube import network, node
from kube.cluster import Cluster
from kube.host import HarnessError, run

_TABLE: Final = "policies"
_FAMILIES: Final = ("inet", "bridge")
_EVERYONE: Final = "0.0.0.0/0"

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """Connections that a pod accepts."""

    sources: tuple[str, ...]
    """Addresses and networks."""
    ports: tuple[int, ...]
    """Empty: every port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """A pod that a policy selects."""

    name: str
    address: str
    node: str
    openings: tuple[Opening, ...]


def guarded_pods(policies: Sequence[Object], pods: Sequence[Object], namespaces: Sequence[Object]) -> list[Guarded]:
    """Return the pods that policies select, with what they accept. Raises `HarnessError` for a policy that this module
    cannot enforce."""
    labels = {one["metadata"]["name"]: one["metadata"].get("labels", {}) for one in namespaces}
    running = [pod for pod in pods if pod.get("status", {}).get("podIP") and not pod["spec"].get("hostNetwork")]
    found = []
    for pod in running:
        mine = [policy for policy in policies if _selects(policy, pod)]
        if not mine:
            continue
        openings = [
            Opening(sources=_sources(rule, policy, running, labels), ports=_ports(rule))
            for policy in mine
            for rule in policy["spec"].get("ingress", [])
        ]
        metadata = pod["metadata"]
        found.append(
            Guarded(
                name=f"{metadata['namespace']}/{metadata['name']}",
                address=pod["status"]["podIP"],
                node=pod["spec"]["nodeName"],
                openings=tuple(one for one in openings if one.sources),
            )
        )
    return found


def _selects(policy: Object, pod: Object) -> bool:
    spec = policy["spec"]
    if spec.get("policyTypes", ["Ingress"]) != ["Ingress"]:
        raise HarnessError(f"NetworkPolicy {policy['metadata']['name']}: only Ingress can be enforced here")
    same = policy["metadata"]["namespace"] == pod["metadata"]["namespace"]
    return same and _matches(spec["podSelector"], pod["metadata"].get("labels", {}))


def _matches(selector: Object, labels: Mapping[str, str]) -> bool:
    if unknown := selector.keys() - {"matchLabels"}:
        raise HarnessError(f"selectors with {', '.join(unknown)} cannot be enforced here")
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


def _sources(
    rule: Object, policy: Object, pods: Sequence[Object], labels: Mapping[str, Mapping[str, str]]
) -> tuple[str, ...]:
    if "from" not in rule:
        return (_EVERYONE,)
    found: set[str] = set()
    for peer in rule["from"]:
        if "ipBlock" in peer:
            if peer["ipBlock"].get("except"):
                raise HarnessError("address blocks with exceptions cannot be enforced here")
            found.add(peer["ipBlock"]["cidr"])
            continue
        for pod in pods:
            namespace = pod["metadata"]["namespace"]
            if "namespaceSelector" in peer:
                is_there = _matches(peer["namespaceSelector"], labels[namespace])
            else:
                is_there = namespace == policy["metadata"]["namespace"]
            if is_there and _matches(peer.get("podSelector", {}), pod["metadata"].get("labels", {})):
                found.add(pod["status"]["podIP"])
    return tuple(sorted(found))


def _ports(rule: Object) -> tuple[int, ...]:
    found = []
    for port in rule.get("ports", []):
        if port.get("protocol", "TCP") != "TCP" or not isinstance(port.get("port"), int) or "endPort" in port:
            raise HarnessError(f"the port {port} cannot be enforced here")
        found.append(port["port"])
    return tuple(found)


def ruleset(pods: Sequence[Guarded]) -> str:
    """Return the rules of one node for nft, for its pods."""
    lines = []
    for family in _FAMILIES:
        lines += [f"add table {family} {_TABLE}", f"delete table {family} {_TABLE}", f"table {family} {_TABLE} {{"]
        lines += ["  chain forward {", "    type filter hook forward priority 0; policy accept;"]
        lines += [
            f"    ip daddr {pod.address} tcp flags & (syn | ack) == syn jump pod{number}"
            for number, pod in enumerate(pods)
        ]
        lines.append("  }")
        for number, pod in enumerate(pods):
            lines.append(f"  chain pod{number} {{")
            lines += [f"    {_accepts(opening)}" for opening in pod.openings]
            lines += ["    drop", "  }"]
        lines.append("}")
    return "".join(f"{line}\n" for line in lines)


def _accepts(opening: Opening) -> str:
    networks = [str(ipaddress.ip_network(source)) for source in opening.sources]
    sources = "" if _EVERYONE in networks else f"ip saddr {{ {', '.join(networks)} }} "
    ports = f"tcp dport {{ {', '.join(map(str, opening.ports))} }} " if opening.ports else ""
    return f"{sources}{ports}accept"


@contextmanager
def enforced(cluster: Cluster) -> Iterator[list[Guarded]]:
    """Enforce the policies that exist, within the block. Yields the pods that they select."""
    pods = guarded_pods(*(_listed(cluster, kind) for kind in ("networkpolicies", "pods", "namespaces")))
    try:
        for number in cluster.run.numbers:
            here = [pod for pod in pods if pod.node == node.name_of(number)]
            _nft(cluster, number, ruleset(here))
        yield pods
    finally:
        for number in cluster.run.numbers:
            gone = "".join(f"add table {family} {_TABLE}\ndelete table {family} {_TABLE}\n" for family in _FAMILIES)
            _nft(cluster, number, gone)


def _nft(cluster: Cluster, number: int, rules: str) -> None:
    space = network.namespace(cluster.run.tag, node.name_of(number))
    run(["nsenter", f"--net={Path('/run/netns', space)}", "nft", "--file", "-"], stdin=rules)


def _listed(cluster: Cluster, kind: str) -> list[Object]:
    kubectl = cluster.programs / "kubectl"
    text = run([kubectl, "--kubeconfig", cluster.kubeconfig, "get", kind, "--all-namespaces", "--output=json"])
    items: list[Object] = json.loads(text)["items"]
    return items
