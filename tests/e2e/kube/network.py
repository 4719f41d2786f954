"""Addresses of a run, its bridge and its network namespaces.

Chooses a `Plan` of addresses from the networks that the machine uses already (pure), and creates the links for it.
Invariant: every link and namespace is named `<tag>-...`, and a plan overlaps no route of the machine.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from kube.host import HarnessError, run

MAXIMUM_NODES: Final = 4
CONTROL_PLANE: Final = "cp"
_SLOTS: Final = (*range(250, 255), *range(240, 250))
_FIRST_HOST: Final = 10

Network = ipaddress.IPv4Network


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Addresses of one cluster, all of them in 10.<slot>.0.0/16.

    The nodes and the control plane are in 10.<slot>.0.0/24, the pods of node n in 10.<slot>.<64 + n>.0/24, and the
    services in the upper half.
    """

    slot: int

    def block(self) -> str:
        """The network that contains all addresses of this cluster."""
        return f"10.{self.slot}.0.0/16"

    def gateway(self) -> str:
        """This machine's address on the bridge."""
        return f"10.{self.slot}.0.1"

    def control_plane(self) -> str:
        """The address of the API server and of DNS."""
        return f"10.{self.slot}.0.{_FIRST_HOST}"

    def node(self, number: int) -> str:
        """The address of a node. Numbers start at 1."""
        return f"10.{self.slot}.0.{_FIRST_HOST + number}"

    def pods(self, number: int) -> str:
        """The network of a node's pods."""
        return f"10.{self.slot}.{64 + number}.0/24"

    def all_pods(self) -> str:
        """The network of all pods."""
        return f"10.{self.slot}.64.0/18"

    def services(self) -> str:
        """The network of cluster IPs."""
        return f"10.{self.slot}.128.0/17"

    def api_service(self) -> str:
        """The cluster IP of the API server. Kubernetes takes the first one."""
        return f"10.{self.slot}.128.1"

    def dns_service(self) -> str:
        """The cluster IP of DNS."""
        return f"10.{self.slot}.128.10"


def choose(used: Iterable[Network], taken: Iterable[int]) -> Plan:
    """The first plan that overlaps no used network and is no other run's. Raise `HarnessError` if there is none."""
    networks, others = tuple(used), frozenset(taken)
    for slot in _SLOTS:
        plan = Plan(slot=slot)
        block = Network(plan.block())
        if slot not in others and not any(block.overlaps(network) for network in networks):
            return plan
    raise HarnessError("no network 10.240.0.0/16 to 10.254.0.0/16 is free: are many clusters running here?")


def parse_routes(text: str) -> tuple[Network, ...]:
    """The networks of `ip -json route`. The default route is ignored because it overlaps everything."""
    found = []
    for route in json.loads(text or "[]"):
        with suppress(ValueError):  # "default", or a type of route that has no network
            network = Network(route["dst"])
            if network.prefixlen > 0:
                found.append(network)
    return tuple(found)


def used_networks() -> tuple[Network, ...]:
    """The networks for which this machine has routes."""
    return parse_routes(run(["ip", "-json", "-4", "route", "show", "table", "all"]))


def namespace(tag: str, machine: str) -> str:
    """The name of the network namespace of a node or the control plane, and of its link at the bridge."""
    return f"{tag}-{machine}"


def bridge(tag: str) -> str:
    """The name of the run's bridge."""
    return f"{tag}-br"


def build(tag: str, plan: Plan, nodes: int) -> None:
    """Create the bridge, the namespaces of the control plane and the nodes, and the routes between their pods."""
    run(["ip", "link", "add", bridge(tag), "type", "bridge"])
    run(["ip", "addr", "add", f"{plan.gateway()}/24", "dev", bridge(tag)])
    run(["ip", "link", "set", bridge(tag), "up"])
    machines = {CONTROL_PLANE: plan.control_plane()} | {f"node{n}": plan.node(n) for n in range(1, nodes + 1)}
    for machine, address in machines.items():
        _add_machine(tag, machine, address, plan.gateway())
    for number in range(1, nodes + 1):
        route = ["route", "add", plan.pods(number), "via", plan.node(number)]
        run(["ip", *route])
        for machine in machines:
            if machine != f"node{number}":
                run(["ip", "-n", namespace(tag, machine), *route])


def _add_machine(tag: str, machine: str, address: str, gateway: str) -> None:
    name = namespace(tag, machine)
    run(["ip", "netns", "add", name])
    run(["ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name])
    run(["ip", "link", "set", name, "master", bridge(tag), "up"])
    run(["ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0"])
    run(["ip", "-n", name, "link", "set", "eth0", "up"])
    run(["ip", "-n", name, "link", "set", "lo", "up"])
    run(["ip", "-n", name, "route", "add", "default", "via", gateway])
    run(["nsenter", f"--net=/run/netns/{name}", "sysctl", "-qw", "net.ipv4.ip_forward=1"])


def plug(tag: str, machine: str, *, up: bool) -> None:
    """Connect a node or the control plane to the bridge (`up`), or disconnect it."""
    run(["ip", "link", "set", namespace(tag, machine), "up" if up else "down"])


def existing_links() -> tuple[str, ...]:
    """The names of this machine's links."""
    return tuple(link["ifname"] for link in json.loads(run(["ip", "-json", "link", "show"]) or "[]"))


def existing_namespaces() -> tuple[str, ...]:
    """The names of this machine's network namespaces."""
    return tuple(entry["name"] for entry in json.loads(run(["ip", "-json", "netns", "list"]) or "[]"))


def processes_in(name: str) -> tuple[int, ...]:
    """The ids of the processes in a network namespace."""
    return tuple(int(word) for word in run(["ip", "netns", "pids", name]).split())
