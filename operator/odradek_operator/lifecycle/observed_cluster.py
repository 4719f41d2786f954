"""The state of one cluster in Kubernetes, as frozen values. Pure.

`observe` builds a `KubernetesState` from objects of the API server; `rolling`, `release` and `cluster_plan` use it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from odradek_operator.lifecycle.parsing import Object, condition, is_true, items, mapping, moment, number, text, texts
from odradek_operator.lifecycle.reach import reach
from odradek_operator.objects import names
from odradek_operator.objects.names import BrokerLink, EnsembleLink
from odradek_operator.objects.slots import slot_of

_NODE_KEY: Final = re.compile(r"(^|/)(hostname|node|nodename|metadata\.name)$")
"""Suffixes of the labels with which storage drivers bind a volume to one node; `metadata.name` is a field."""
_SET: Final = "StatefulSet"
_Link = TypeVar("_Link", BrokerLink, EnsembleLink)
_ADDRESS_TYPES: Final = ("ExternalIP", "InternalIP")
"""Types of addresses of nodes that brokers advertise."""
_REFUSAL: Final = re.compile(
    r"create (?:Pod|Claim) (?P<name>\S+) (?:in|for Pod (?P<of>\S+) in) StatefulSet \S+ failed error: (?P<why>.*)",
    re.DOTALL,
)
_STARTING: Final = ("ContainerCreating", "PodInitializing")
_MAX_MESSAGE: Final = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """The container of one broker of a pod."""

    ready: bool
    trouble: str = ""
    """Why it is not ready, as a message; empty if it is ready or the reason is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod of a StatefulSet."""

    name: str
    uid: str
    ordinal: int
    node: str | None
    """The node it runs on; None while it is not scheduled."""
    ready: bool
    terminating: bool
    restart_hash: str
    """Hash of the template from which it was created; empty if the operator did not create it."""
    phase: str
    """`Pending`, `Running`, `Succeeded`, `Failed`, `Unknown`."""
    trouble: str
    """Why it is not ready, from its conditions and container states; empty if unknown."""
    unscheduled_since: float | None
    """Seconds since the epoch since when it is unschedulable; None if it is not."""
    claims: tuple[str, ...] = ()
    """Names of its PersistentVolumeClaims."""
    version: str = ""
    """Tag of its container's image; empty if there is none."""
    spread: bool = False
    """Whether it must be spread over nodes."""
    failing: bool = False
    """Whether one of its containers failed or cannot start."""
    slots: int = 1
    """Number of brokers in it: of the containers with which it was created. 1 for members of the ensemble."""
    certificates: str = ""
    """Digest of the certificates of a member, as in its template."""
    containers: Mapping[int, Container] = field(default_factory=dict)
    """The containers of its brokers that Kubernetes reports, by slot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A PersistentVolumeClaim of a broker or a member of the ensemble."""

    name: str
    uid: str
    volume: str | None
    """Name of the PersistentVolume; None while it is not bound."""
    nodes: tuple[str, ...]
    """The nodes to which the volume's affinity binds it; empty if all nodes can reach it."""
    lost: bool
    """Whether the phase is `Lost`: the volume no longer exists."""
    terminating: bool
    """Whether it is being deleted, or will be because its owner, a StatefulSet, was deleted."""
    reach: frozenset[str] | None = None
    """The nodes whose labels match the volume's affinity; None for all nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node of Kubernetes."""

    name: str
    ready: bool
    changed_at: float
    """Seconds since the epoch at which `ready` last changed."""
    addresses: tuple[str, ...] = ()
    """Addresses at which clients may reach its node ports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Set:
    """A StatefulSet."""

    name: str
    replicas: int
    """`spec.replicas`."""
    restart_hash: str
    """Hash of its template. Pods with another hash are outdated."""
    generation_observed: bool
    """Whether its controller has observed the latest specification."""
    spread: bool = False
    """Whether its template requires that pods spread over nodes."""
    first_ordinal: int = 0
    """Ordinal number of the first pod, `spec.ordinals.start`."""
    slots: int = 1
    """Number of brokers in each pod of its template. 1 for the ensemble."""
    link: BrokerLink = BrokerLink.PLAINTEXT
    """How the brokers of its template connect to each other."""
    ensemble_link: EnsembleLink = EnsembleLink.PLAINTEXT
    """How members of its template are connected to."""
    certificates: str = ""
    """Digest of the certificates of members, as in the template."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSpec:
    """A valid specification of a Cluster resource."""

    generation: int
    text: str
    """`spec` as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What is stored about a cluster outside its StatefulSets; None for what is unknown."""

    brokers: int | None = None
    """The largest number of pods of the brokers' StatefulSet so far, not counting those drained and removed."""
    per_pod: int | None = None
    """The largest number of brokers in a pod so far, not counting those drained and removed; None means 1."""
    first_id: int | None = None
    """The lowest broker id."""
    members: int | None = None
    """Size of the cluster's own ensemble."""
    formed: bool | None = None
    """Whether a majority of that ensemble has ever served."""
    cluster_id: str | None = None
    """The cluster id in ZooKeeper."""
    cluster_uid: str = ""
    """UID of the Cluster resource for which the record was written."""
    spec: KeptSpec | None = None
    """Its last valid specification."""
    link: BrokerLink | None = None
    """How the brokers connect to each other; None if they never had another link than plaintext."""
    ensemble_link: EnsembleLink | None = None
    """How members are connected to; None as for `link`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesState:
    """The Kubernetes objects of one cluster."""

    brokers: Mapping[int, Pod] = field(default_factory=dict)
    """Pods of brokers, by ordinal, which is the id of the broker in slot 0."""
    ensemble: Mapping[int, Pod] = field(default_factory=dict)
    claims: Mapping[str, Claim] = field(default_factory=dict)
    """Claims of brokers and ensemble, by name."""
    nodes: Mapping[str, Node] = field(default_factory=dict)
    """All nodes, by name."""
    sets: Mapping[str, Set] = field(default_factory=dict)
    """StatefulSets by name."""
    refusals: Mapping[str, str] = field(default_factory=dict)
    """Why Kubernetes does not create a missing pod, by the pod's name."""
    record: Record = field(default_factory=Record)


LEADER: Final = "leader"
"""Mode of the member that leads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quorum:
    """What the members of the ensemble report."""

    modes: Mapping[int, str] = field(default_factory=dict)
    """`leader`, `follower` or `standalone`, by member. Members that do not answer or do not serve are missing."""
    followers: int | None = None
    """Number of followers in sync with the leader, as it reports; None without a leader."""


def parse_pod(body: Object) -> Pod:
    """Parse a pod. Raises `ValueError` if its name does not end with a number: it belongs to no StatefulSet."""
    name = text(body, "metadata", "name")
    scheduled = condition(body, "PodScheduled")
    unscheduled = text(scheduled, "status") == "False"
    return Pod(
        name=name,
        uid=text(body, "metadata", "uid"),
        ordinal=int(name.rpartition("-")[2]),
        node=text(body, "spec", "nodeName") or None,
        ready=is_true(body, "Ready"),
        terminating=bool(text(body, "metadata", "deletionTimestamp")),
        restart_hash=text(body, "metadata", "annotations", names.RESTART_HASH),
        phase=text(body, "status", "phase") or "Unknown",
        trouble=trouble(body),
        unscheduled_since=moment(scheduled, "lastTransitionTime") if unscheduled else None,
        claims=tuple(
            claim
            for volume in items(body, "spec", "volumes")
            if (claim := text(volume, "persistentVolumeClaim", "claimName"))
        ),
        version=_tag(text(next(iter(items(body, "spec", "containers")), {}), "image")),
        spread=_must_spread(mapping(body, "spec")),
        failing=not is_true(body, "Ready") and any(map(_container_trouble, _container_statuses(body))),
        slots=_slots(mapping(body, "spec")),
        certificates=_variable(mapping(body, "spec"), names.CERTIFICATES_DIGEST),
        containers=_containers(body),
    )


def _slots(spec: Object) -> int:
    """Return the number of brokers in a pod, 1 for a pod without brokers."""
    found = [slot_of(text(one, "name")) for one in items(spec, "containers")]
    return max([1, *(slot + 1 for slot in found if slot is not None)])


def _containers(body: Object) -> dict[int, Container]:
    found = {slot_of(text(status, "name")): status for status in items(body, "status", "containerStatuses")}
    return {
        slot: Container(ready=status.get("ready") is True, trouble=_broker_trouble(status))
        for slot, status in found.items()
        if slot is not None
    }


def parse_refusals(events: Iterable[Object]) -> dict[str, str]:
    """Return the newest message for each pod from Events of StatefulSets that could not create it or its claim."""
    found: dict[str, tuple[float, str]] = {}
    for event in events:
        match = _REFUSAL.fullmatch(text(event, "message"))
        if match is None:
            continue
        pod, seen = match["of"] or match["name"], moment(event, "lastTimestamp") or moment(event, "eventTime") or 0.0
        if found.get(pod, (-1.0, ""))[0] < seen:
            found[pod] = (seen, _sentence("Kubernetes does not create it", match["why"]))
    return {pod: message for pod, (_, message) in found.items()}


def _tag(image: str) -> str:
    """Return the tag of an image, such as `1.2` for `registry:5000/broker:1.2@sha256:...`; empty if it has none."""
    name = image.partition("@")[0].rpartition("/")[2]
    return name.partition(":")[2]


def _must_spread(spec: Object) -> bool:
    """Whether a pod's topology spread constraints are mandatory."""
    return any(
        text(one, "topologyKey") == names.HOSTNAME_LABEL and text(one, "whenUnsatisfiable") == "DoNotSchedule"
        for one in items(spec, "topologySpreadConstraints")
    )


def parse_claim(body: Object, volume: Object | None, nodes: Iterable[Object] = ()) -> Claim:
    """Parse a claim and its volume, if there is one. `nodes`: all nodes."""
    return Claim(
        name=text(body, "metadata", "name"),
        uid=text(body, "metadata", "uid"),
        volume=text(body, "spec", "volumeName") or None,
        nodes=() if volume is None else _tied_to(volume),
        lost=text(body, "status", "phase") == "Lost",
        terminating=bool(text(body, "metadata", "deletionTimestamp")),
        reach=None if volume is None else reach(volume, nodes),
    )


def _tied_to(volume: Object) -> tuple[str, ...]:
    """Return the nodes that the volume's affinity names individually. A zone does not count."""
    found = [
        value
        for term in items(volume, "spec", "nodeAffinity", "required", "nodeSelectorTerms")
        for rule in [*items(term, "matchExpressions"), *items(term, "matchFields")]
        if text(rule, "operator") == "In" and _NODE_KEY.search(text(rule, "key"))
        for value in texts(rule, "values")
    ]
    return tuple(dict.fromkeys(found))


def parse_node(body: Object) -> Node:
    """Parse a node. A node without a status counts as not ready since its creation."""
    changed_at = moment(condition(body, "Ready"), "lastTransitionTime")
    if changed_at is None:
        changed_at = moment(body, "metadata", "creationTimestamp")
    return Node(
        name=text(body, "metadata", "name"),
        ready=is_true(body, "Ready"),
        changed_at=0.0 if changed_at is None else changed_at,
        addresses=tuple(
            address
            for one in items(body, "status", "addresses")
            if text(one, "type") in _ADDRESS_TYPES and (address := text(one, "address"))
        ),
    )


def parse_set(body: Object) -> Set:
    """Parse a StatefulSet. Kubernetes' default is one replica."""
    replicas = number(body, "spec", "replicas")
    template = mapping(body, "spec", "template", "spec")
    seen, written = number(body, "status", "observedGeneration"), number(body, "metadata", "generation")
    return Set(
        name=text(body, "metadata", "name"),
        replicas=1 if replicas is None else replicas,
        restart_hash=text(body, "spec", "template", "metadata", "annotations", names.RESTART_HASH),
        generation_observed=(seen or 0) >= (written or 0),
        spread=_must_spread(template),
        first_ordinal=number(body, "spec", "ordinals", "start") or 0,
        slots=_slots(template),
        link=_member_of(BrokerLink, _variable(template, names.BROKER_LINK)),
        ensemble_link=_member_of(EnsembleLink, _variable(template, names.ENSEMBLE_LINK)),
        certificates=_variable(template, names.CERTIFICATES_DIGEST),
    )


def _variable(spec: Object, name: str) -> str:
    """Return the value of an environment variable of the first container of a pod or a template; empty without."""
    first = next(iter(items(spec, "containers")), {})
    return next((text(one, "value") for one in items(first, "env") if text(one, "name") == name), "")


def _member_of(links: type[_Link], value: str) -> _Link:
    """Return the link with this value, or plaintext, which is the first."""
    return next((link for link in links if link.value == value), next(iter(links)))


def observe(
    cluster_name: str,
    *,
    pods: Iterable[Object],
    claims: Iterable[Object],
    volumes: Iterable[Object],
    nodes: Iterable[Object],
    sets: Iterable[Object],
) -> KubernetesState:
    """Build the state of one cluster. Ignores objects of others and pods that are not in its two StatefulSets.

    `pods`, `claims` and `sets` are those of the cluster's namespace; `volumes` and `nodes` are all that exist.
    """
    by_name = {text(volume, "metadata", "name"): volume for volume in volumes}
    all_nodes = list(nodes)
    hostnames = {_hostname(node): text(node, "metadata", "name") for node in all_nodes}
    own_sets = list(_of(cluster_name, sets))
    parsed_sets = [parse_set(one) for one in own_sets]
    set_uids = {text(one, "metadata", "uid") for one in own_sets}
    found = [
        _with_termination(
            parse_claim(claim, by_name.get(text(claim, "spec", "volumeName")), all_nodes), claim, set_uids
        )
        for claim in _of(cluster_name, claims)
    ]
    own_pods = list(_of(cluster_name, pods))
    return KubernetesState(
        brokers=_members(own_pods, names.kafka(cluster_name)),
        ensemble=_members(own_pods, names.zookeeper(cluster_name)),
        claims={
            claim.name: replace(claim, nodes=tuple(hostnames.get(node, node) for node in claim.nodes))
            for claim in sorted(found, key=lambda claim: claim.name)
        },
        nodes={node.name: node for node in sorted(map(parse_node, all_nodes), key=lambda node: node.name)},
        sets={one.name: one for one in parsed_sets},
    )


def _with_termination(claim: Claim, body: Object, set_uids: Collection[str]) -> Claim:
    owners = [text(one, "uid") for one in items(body, "metadata", "ownerReferences") if one.get("kind") == _SET]
    return replace(claim, terminating=True) if owners and set(owners).isdisjoint(set_uids) else claim


def _hostname(node: Object) -> str:
    """Return the host name label of a node, which volumes refer to: mostly its name, but not in all clouds."""
    return text(node, "metadata", "labels", names.HOSTNAME_LABEL) or text(node, "metadata", "name")


def _of(cluster_name: str, bodies: Iterable[Object]) -> Iterator[Object]:
    return (body for body in bodies if text(body, "metadata", "labels", names.CLUSTER_LABEL) == cluster_name)


def _members(pods: Iterable[Object], set_name: str) -> dict[int, Pod]:
    form = re.compile(re.escape(set_name) + r"-(0|[1-9][0-9]*)")
    found = [parse_pod(pod) for pod in pods if form.fullmatch(text(pod, "metadata", "name"))]
    return {pod.ordinal: pod for pod in sorted(found, key=lambda pod: pod.ordinal)}


def trouble(pod: Object) -> str:
    """Return why a pod is not ready, as a message; empty if it is ready or the reason is unknown."""
    if is_true(pod, "Ready"):
        return ""
    scheduled = condition(pod, "PodScheduled")
    if text(scheduled, "status") == "False":
        return _sentence("it fits on no node", text(scheduled, "message") or text(scheduled, "reason"))
    statuses = _container_statuses(pod)
    for status in statuses:
        if said := _container_trouble(status):
            return said
    if text(pod, "status", "phase") == "Failed":
        return _sentence(f"it failed ({text(pod, 'status', 'reason') or 'Failed'})", text(pod, "status", "message"))
    running = [text(status, "name") for status in statuses if mapping(status, "state", "running")]
    return _sentence(f"container {running[-1]} runs and is not ready yet", "") if running else ""


def _container_statuses(pod: Object) -> list[Object]:
    return [*items(pod, "status", "initContainerStatuses"), *items(pod, "status", "containerStatuses")]


def _container_trouble(status: Object) -> str:
    """Return why a container is waiting or how it ended; empty if it runs or has completed."""
    name, waiting = text(status, "name"), mapping(status, "state", "waiting")
    ended = mapping(status, "state", "terminated")
    before = mapping(status, "lastState", "terminated")
    if waiting and text(waiting, "reason") not in _STARTING:
        reason = text(waiting, "reason") or "Waiting"
        detail = _how_it_ended(before) if before else text(waiting, "message")
        return _sentence(f"container {name} waits ({reason})", detail)
    if ended and (number(ended, "exitCode") or 0) != 0:
        return _sentence(f"container {name} is down", _how_it_ended(ended))
    if before and mapping(status, "state", "running") and status.get("ready") is not True:
        return _sentence(f"container {name} was started again and is not ready yet", _how_it_ended(before))
    return ""


def _broker_trouble(status: Object) -> str:
    """Return why the container of a broker is not ready; empty if it is ready or the reason is unknown."""
    if status.get("ready") is True:
        return ""
    runs = bool(mapping(status, "state", "running"))
    starting = _sentence(f"container {text(status, 'name')} runs and is not ready yet", "") if runs else ""
    return _container_trouble(status) or starting


def _how_it_ended(ended: Object) -> str:
    """Return why a container ended: its termination message, else its exit code and reason."""
    if message := text(ended, "message"):
        return message
    code, reason = number(ended, "exitCode"), text(ended, "reason")
    said = "it ended" if code is None else f"it ended with exit code {code}"
    return said if reason in ("", "Error", "Completed") else f"{said} ({reason})"


def _sentence(what: str, detail: str) -> str:
    """Return one line that ends with one full stop."""
    line = " ".join(f"{what}: {detail}".split()) if detail else what
    if len(line) > _MAX_MESSAGE:
        line = line[:_MAX_MESSAGE] + "…"
    line = line.rstrip(". ")
    return f"{line[0].upper()}{line[1:]}."
