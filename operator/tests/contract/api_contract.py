"""The behaviour of the Kubernetes API that the operator depends on, as a suite for every implementation.

A subclass provides the fixtures `client`, a `KubernetesClient`, and `namespace`, the name of an empty namespace. The
suite runs against the in-memory API server, over HTTP and within the process (`test_api_server`), and against a real
API server (`tests/e2e`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, TypeVar

import pytest

from odradek_operator.crds.types import Brokers, Cluster, Listener, ListenerType, Volume
from odradek_operator.kube.api import api_client as client_module
from odradek_operator.kube.api.api_client import KubernetesClient, KubernetesError
from odradek_operator.kube.api.object_kinds import Kind, Object, Reference
from odradek_operator.objects import names
from odradek_operator.objects.podspec import ImageSettings
from odradek_operator.objects.wanted import wanted_objects

T = TypeVar("T")
SECONDS = 120.0
LABEL = "odradek.dev/test"


async def until(observe: Callable[[], Awaitable[T]], accept: Callable[[T], object]) -> T:
    """Return the first accepted observation. On a real API server, other controllers work at the same time."""
    async with asyncio.timeout(SECONDS):
        while not accept(seen := await observe()):  # noqa: ASYNC110 - another process changes it
            await asyncio.sleep(0.05)
    return seen


def config_map(namespace: str, name: str = "one", **data: str) -> Object:
    body: Object = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": {LABEL: name}},
    }
    return body | ({"data": data} if data else {})


def topic(namespace: str, name: str = "orders", **spec: Any) -> Object:
    return {
        "apiVersion": "odradek.dev/v1",
        "kind": "Topic",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"cluster": "demo", **spec},
    }


def stateful_set(namespace: str, *, size: str = "1Gi", replicas: int = 0, **environment: str) -> Object:
    labels = {LABEL: "set"}
    container = {
        "name": "main",
        "image": "registry.invalid/nothing:1",
        "env": [{"name": name, "value": value} for name, value in environment.items()],
    }
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "set", "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "serviceName": "set",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            "volumeClaimTemplates": [claim],
        },
    }


def claim(namespace: str, size: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "disk", "namespace": namespace},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "no-such-class",
            "resources": {"requests": {"storage": size}},
        },
    }


def pod(namespace: str, node: str | None) -> Object:
    spec: Object = {
        "containers": [{"name": "main", "image": "registry.invalid/nothing:1"}],
        # A pod on a node that does not exist is garbage-collected after a while, but not at once.
        "tolerations": [{"operator": "Exists"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod", "namespace": namespace},
        "spec": spec | ({} if node is None else {"nodeName": node}),
    }


def version(body: Object) -> str:
    return str(body["metadata"]["resourceVersion"])


def generation(body: Object) -> int:
    return int(body["metadata"]["generation"])


def owner(body: Object) -> Object:
    return {
        "apiVersion": body["apiVersion"],
        "kind": body["kind"],
        "name": body["metadata"]["name"],
        "uid": body["metadata"]["uid"],
    }


class ApiContract:
    """Tests of objects and verbs."""

    # Reads

    async def test_what_was_made_is_there(self, client: KubernetesClient, namespace: str) -> None:
        assert await client.get(Kind.CONFIG_MAP, namespace, "one") is None
        made = await client.create(config_map(namespace, a="1"))
        assert made["data"] == {"a": "1"}
        assert made["metadata"]["uid"] and made["metadata"]["creationTimestamp"]
        found = await client.get(Kind.CONFIG_MAP, namespace, "one")
        assert found == made

    async def test_a_name_is_taken_once(self, client: KubernetesClient, namespace: str) -> None:
        await client.create(config_map(namespace))
        with pytest.raises(KubernetesError) as caught:
            await client.create(config_map(namespace))
        assert caught.value.status == HTTPStatus.CONFLICT
        assert "already exists" in caught.value.reason

    async def test_lists_are_by_label(self, client: KubernetesClient, namespace: str) -> None:
        for name in ("one", "two"):
            await client.create(config_map(namespace, name))
        chosen = {
            f"{LABEL}=one": ["one"],
            f"{LABEL}!=one,{LABEL}": ["two"],
            f"{LABEL} in (one, two)": ["one", "two"],
            f"{LABEL} notin (one),{LABEL}": ["two"],
            LABEL: ["one", "two"],
            f"{LABEL},absent": [],
            f"{LABEL},!absent": ["one", "two"],
        }
        for selector, expected in chosen.items():
            found = await client.list(Kind.CONFIG_MAP, namespace, selector=selector)
            assert [body["metadata"]["name"] for body in found] == expected, selector
        everywhere = await client.list(Kind.CONFIG_MAP, None, selector=f"{LABEL}=one")
        assert namespace in {body["metadata"]["namespace"] for body in everywhere}

    async def test_events_are_listed_by_fields(self, client: KubernetesClient, namespace: str) -> None:
        for name, reason in {"one": "FailedCreate", "two": "SuccessfulCreate"}.items():
            about = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "set", "namespace": namespace}
            await client.create(
                {
                    "apiVersion": "v1",
                    "kind": "Event",
                    "metadata": {"name": name, "namespace": namespace},
                    "involvedObject": about,
                    "reason": reason,
                    "message": "A message.",
                    "type": "Warning",
                    "source": {"component": "test"},
                }
            )
        fields = "involvedObject.kind=StatefulSet,involvedObject.name=set,reason=FailedCreate"
        found = await client.list(Kind.EVENT, namespace, fields=fields)
        assert [body["metadata"]["name"] for body in found] == ["one"]
        assert await client.list(Kind.EVENT, namespace, fields=f"{fields},involvedObject.uid!=") == []
        with pytest.raises(KubernetesError) as refused:
            await client.list(Kind.EVENT, namespace, fields="message=x")
        assert refused.value.status == HTTPStatus.BAD_REQUEST

    async def test_a_selector_that_is_none_is_refused(self, client: KubernetesClient, namespace: str) -> None:
        with pytest.raises(KubernetesError) as caught:
            await client.list(Kind.CONFIG_MAP, namespace, selector="a b c")
        assert caught.value.status == HTTPStatus.BAD_REQUEST

    async def test_long_lists_come_in_pages(
        self, client: KubernetesClient, namespace: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(client_module, "PAGE", 2)
        wanted = [f"number-{number}" for number in range(5)]
        for name in wanted:
            await client.create(config_map(namespace, name))
        found = await client.list(Kind.CONFIG_MAP, namespace, selector=LABEL)
        assert [body["metadata"]["name"] for body in found] == wanted

    async def test_one_object_is_listed_by_its_name(self, client: KubernetesClient, namespace: str) -> None:
        for name in ("one", "two"):
            await client.create(config_map(namespace, name))
            await client.create(topic(namespace, name))
        for kind in (Kind.CONFIG_MAP, Kind.TOPIC):
            found = await client.list(kind, namespace, fields="metadata.name=two")
            assert [body["metadata"]["name"] for body in found] == ["two"]
            assert await client.list(kind, namespace, fields="metadata.name=three") == []

    async def test_items_of_lists_have_no_kind_unless_custom(self, client: KubernetesClient, namespace: str) -> None:
        await client.create(config_map(namespace))
        await client.create(topic(namespace))
        (item,) = await client.list(Kind.CONFIG_MAP, namespace, selector=f"{LABEL}=one")
        assert "kind" not in item
        (item,) = await client.list(Kind.TOPIC, namespace)
        assert item["kind"] == "Topic"

    # Replace and merge patch

    async def test_a_stale_version_is_refused(self, client: KubernetesClient, namespace: str) -> None:
        made = await client.create(config_map(namespace, a="1"))
        changed = await client.replace({**made, "data": {"a": "2"}})
        assert version(changed) != version(made)
        with pytest.raises(KubernetesError) as caught:
            await client.replace({**made, "data": {"a": "3"}})
        assert caught.value.status == HTTPStatus.CONFLICT
        found = await client.get(Kind.CONFIG_MAP, namespace, "one")
        assert found is not None and found["data"] == {"a": "2"}

    async def test_replacing_what_is_there_changes_nothing(self, client: KubernetesClient, namespace: str) -> None:
        made = await client.create(config_map(namespace, a="1"))
        assert version(await client.replace(made)) == version(made)

    async def test_what_is_missing_cannot_be_replaced(self, client: KubernetesClient, namespace: str) -> None:
        with pytest.raises(KubernetesError) as caught:
            await client.replace(config_map(namespace) | {"metadata": {"name": "one", "namespace": namespace}})
        assert caught.value.status == HTTPStatus.NOT_FOUND

    async def test_merge_patches(self, client: KubernetesClient, namespace: str) -> None:
        made = await client.create(config_map(namespace, a="1", b="2"))
        which = Reference.of(made)
        merged = await client.merge(which, {"data": {"a": None, "c": "3"}})
        assert merged is not None and merged["data"] == {"b": "2", "c": "3"}
        same = await client.merge(which, {"data": {"a": None, "c": "3"}})
        assert same is not None and version(same) == version(merged)
        with pytest.raises(KubernetesError) as caught:
            await client.merge(which, {"metadata": {"resourceVersion": version(made)}, "data": {"d": "4"}})
        assert caught.value.status == HTTPStatus.CONFLICT

    async def test_merging_into_nothing_is_nothing(self, client: KubernetesClient, namespace: str) -> None:
        missing = Reference(kind=Kind.TOPIC, namespace=namespace, name="missing")
        assert await client.merge(missing, {"spec": {}}) is None
        assert await client.merge(missing, {"status": {}}, sub="status") is None

    # Status and generation

    async def test_a_status_is_of_its_own(self, client: KubernetesClient, namespace: str) -> None:
        made = await client.create({**topic(namespace, partitions=3), "status": {"partitions": 9}})
        assert "status" not in made
        assert generation(made) == 1
        which = Reference.of(made)
        after_merge = await client.merge(which, {"spec": {"partitions": 4}, "status": {"partitions": 3}}, sub="status")
        assert after_merge is not None and (after_merge["spec"]["partitions"], after_merge["status"]["partitions"]) == (
            3,
            3,
        )
        assert generation(after_merge) == 1
        specified = await client.merge(which, {"spec": {"partitions": 5}, "status": {"partitions": 8}})
        assert specified is not None and (specified["spec"]["partitions"], specified["status"]["partitions"]) == (5, 3)
        assert generation(specified) == 2
        labelled = await client.merge(which, {"metadata": {"labels": {"a": "b"}}})
        assert labelled is not None and generation(labelled) == 2
        assert version(labelled) != version(specified)

    # Server-side apply

    async def test_applying_makes_and_then_changes_nothing(self, client: KubernetesClient, namespace: str) -> None:
        made = await client.apply(config_map(namespace, a="1"))
        assert made["data"] == {"a": "1"}
        assert version(await client.apply(config_map(namespace, a="1"))) == version(made)
        changed = await client.apply(config_map(namespace, a="2"))
        assert changed["data"] == {"a": "2"}
        assert changed["metadata"]["uid"] == made["metadata"]["uid"]

    async def test_what_is_applied_no_longer_goes(self, client: KubernetesClient, namespace: str) -> None:
        await client.apply(config_map(namespace, a="1", b="2"))
        assert (await client.apply(config_map(namespace, a="1")))["data"] == {"a": "1"}
        assert "data" not in await client.apply(config_map(namespace))

    async def test_what_others_added_stays(self, client: KubernetesClient, namespace: str) -> None:
        which = Reference.of(await client.apply(config_map(namespace, a="1")))
        await client.merge(which, {"data": {"theirs": "x"}, "metadata": {"annotations": {"note": "y"}}})
        found = await client.apply(config_map(namespace, a="2"))
        assert found["data"] == {"a": "2", "theirs": "x"}
        assert found["metadata"]["annotations"] == {"note": "y"}

    async def test_what_others_changed_is_set_back(self, client: KubernetesClient, namespace: str) -> None:
        which = Reference.of(await client.apply(config_map(namespace, a="1")))
        await client.merge(which, {"data": {"a": "theirs"}})
        assert (await client.apply(config_map(namespace, a="1")))["data"] == {"a": "1"}
        await client.merge(which, {"data": {"a": None}})
        assert (await client.apply(config_map(namespace, a="1")))["data"] == {"a": "1"}

    async def test_without_force_nothing_is_taken_from_others(self, client: KubernetesClient, namespace: str) -> None:
        await client.apply(config_map(namespace, a="1"), force=False)
        which = Reference.of(await client.apply(config_map(namespace, a="2"), force=False))
        await client.merge(which, {"data": {"a": "theirs"}})
        with pytest.raises(KubernetesError) as refused:
            await client.apply(config_map(namespace, a="1"), force=False)
        assert refused.value.status == HTTPStatus.CONFLICT
        found = await client.get(which.kind, namespace, which.name)
        assert found is not None
        assert found["data"] == {"a": "theirs"}

    async def test_an_apply_for_another_uid_is_refused(self, client: KubernetesClient, namespace: str) -> None:
        body = config_map(namespace, a="1")
        made = await client.apply(body)
        mine = {**body, "metadata": {**body["metadata"], "uid": made["metadata"]["uid"]}}
        assert (await client.apply(mine))["metadata"]["uid"] == made["metadata"]["uid"]
        mine["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555"
        with pytest.raises(KubernetesError) as refused:
            await client.apply(mine)
        assert refused.value.status in (HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY)

    async def test_lists_of_things_with_keys_are_merged(self, client: KubernetesClient, namespace: str) -> None:
        made = await client.apply(stateful_set(namespace, A="1", B="2"))
        which = Reference.of(made)
        theirs = [*_environment(made), {"name": "THEIRS", "value": "x"}]
        container = made["spec"]["template"]["spec"]["containers"][0] | {"env": theirs}
        await client.merge(which, {"spec": {"template": {"spec": {"containers": [container]}}}})
        found = await client.apply(stateful_set(namespace, A="3"))
        assert {one["name"]: one["value"] for one in _environment(found)} == {"A": "3", "THEIRS": "x"}

    async def test_all_objects_of_a_cluster_are_applied_twice_alike(
        self, client: KubernetesClient, namespace: str
    ) -> None:
        """The server changes no field in such a way that the operator would apply the object again and again."""
        resource = await client.create(
            {
                "apiVersion": "odradek.dev/v1",
                "kind": "Cluster",
                "metadata": {"name": "demo", "namespace": namespace},
                "spec": {},
            }
        )
        cluster = Cluster(
            name="demo",
            namespace=namespace,
            uid=resource["metadata"]["uid"],
            brokers=Brokers(volumes=(Volume(id=0, size="1Gi", storage_class="none-such"),)),
            listeners=(
                Listener(name="plain", port=9092),
                Listener(name="outside", port=9094, type=ListenerType.NODE_PORT),
            ),
        )
        wanted = wanted_objects(cluster, settings=ImageSettings(), broker_count=3, operator_namespace="odradek-system")
        try:
            before = [await client.apply(item.body) for item in wanted]
            after = [await client.apply(item.body) for item in wanted]
        finally:
            await client.delete(Reference.of(resource))
            for item in wanted:
                if not item.owned:
                    await client.delete(Reference.of(item.body))
        assert [_meant(body) for body in after] == [_meant(body) for body in before]

    # Deletion

    async def test_deletion(self, client: KubernetesClient, namespace: str) -> None:
        made = await client.create(config_map(namespace))
        which = Reference.of(made)
        assert not await client.delete(which, uid="another")
        assert await client.get(Kind.CONFIG_MAP, namespace, "one") is not None
        assert await client.delete(which, uid=made["metadata"]["uid"])
        assert await client.get(Kind.CONFIG_MAP, namespace, "one") is None
        assert not await client.delete(which)

    async def test_finalizers_hold_a_deletion(self, client: KubernetesClient, namespace: str) -> None:
        made = await client.create(topic(namespace))
        which = Reference.of(made)
        await client.merge(which, {"metadata": {"finalizers": ["odradek.dev/a", "odradek.dev/b"]}})
        assert await client.delete(which)
        leaving = await client.get(Kind.TOPIC, namespace, "orders")
        assert leaving is not None and leaving["metadata"]["deletionTimestamp"]
        assert await client.delete(which)
        again = await client.get(Kind.TOPIC, namespace, "orders")
        assert again is not None
        assert again["metadata"]["deletionTimestamp"] == leaving["metadata"]["deletionTimestamp"]
        with pytest.raises(KubernetesError) as caught:
            await client.merge(which, {"metadata": {"finalizers": ["odradek.dev/a", "odradek.dev/new"]}})
        assert caught.value.status == HTTPStatus.UNPROCESSABLE_ENTITY
        await client.merge(which, {"metadata": {"finalizers": ["odradek.dev/b"]}})
        assert await client.get(Kind.TOPIC, namespace, "orders") is not None
        await client.merge(which, {"metadata": {"finalizers": []}})
        assert await client.get(Kind.TOPIC, namespace, "orders") is None

    async def test_what_is_owned_goes_with_its_owner(self, client: KubernetesClient, namespace: str) -> None:
        made = await client.create(topic(namespace))
        owned = config_map(namespace)
        owned["metadata"]["ownerReferences"] = [owner(made)]
        await client.create(owned)
        assert await client.delete(Reference.of(made))
        await until(lambda: client.get(Kind.CONFIG_MAP, namespace, "one"), lambda found: found is None)

    async def test_orphans_stay_without_their_owner(self, client: KubernetesClient, namespace: str) -> None:
        made = await client.create(topic(namespace))
        owned = config_map(namespace)
        owned["metadata"]["ownerReferences"] = [owner(made)]
        await client.create(owned)
        assert await client.delete(Reference.of(made), orphan=True)
        await until(lambda: client.get(Kind.TOPIC, namespace, "orders"), lambda found: found is None)
        found = await client.get(Kind.CONFIG_MAP, namespace, "one")
        assert found is not None and "ownerReferences" not in found["metadata"]

    async def test_a_pod_on_a_node_goes_with_grace_or_by_force(self, client: KubernetesClient, namespace: str) -> None:
        made = await client.create(pod(namespace, "no-such-node"))
        which = Reference.of(made)
        assert await client.delete(which, uid=made["metadata"]["uid"])
        leaving = await client.get(Kind.POD, namespace, "pod")
        assert leaving is not None and leaving["metadata"]["deletionTimestamp"]
        assert await client.delete(which, uid=made["metadata"]["uid"], force=True)
        assert await client.get(Kind.POD, namespace, "pod") is None

    # Immutable fields

    async def test_claim_templates_are_fixed(self, client: KubernetesClient, namespace: str) -> None:
        made = await client.apply(stateful_set(namespace))
        with pytest.raises(KubernetesError) as caught:
            await client.apply(stateful_set(namespace, size="2Gi"))
        assert caught.value.status == HTTPStatus.UNPROCESSABLE_ENTITY
        changed = await client.apply(stateful_set(namespace, A="1"))
        assert generation(changed) == generation(made) + 1

    async def test_claims_cannot_be_changed_unless_bound(self, client: KubernetesClient, namespace: str) -> None:
        made = await client.create(claim(namespace, "2Gi"))
        for size in ("1Gi", "3Gi"):
            with pytest.raises(KubernetesError) as caught:
                await client.merge(Reference.of(made), {"spec": {"resources": {"requests": {"storage": size}}}})
            assert caught.value.status in (HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.FORBIDDEN)

    # Keys of tokens

    async def test_the_keys_of_service_accounts_are_a_key_set(self, client: KubernetesClient) -> None:
        keys = json.loads(await client.service_account_keys())["keys"]
        assert keys
        assert all(key["kty"] in ("RSA", "EC") and key["use"] == "sig" and key["kid"] for key in keys)
        assert await client.service_account_keys() == await client.service_account_keys()

    # Cluster-scoped objects

    async def test_objects_without_a_namespace(self, client: KubernetesClient, namespace: str) -> None:
        name = names.node_reader_binding(namespace, "demo")
        body: Object = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name, "labels": {LABEL: namespace}},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "none-such"},
            "subjects": [{"kind": "ServiceAccount", "name": "demo", "namespace": namespace}],
        }
        made = await client.apply(body)
        assert "namespace" not in made["metadata"]
        (found,) = await client.list(Kind.CLUSTER_ROLE_BINDING, None, selector=f"{LABEL}={namespace}")
        assert found["metadata"]["name"] == name
        assert await client.delete(Reference.of(made), uid=made["metadata"]["uid"])
        assert await client.list(Kind.CLUSTER_ROLE_BINDING, None, selector=f"{LABEL}={namespace}") == []


def _environment(body: Object) -> list[Object]:
    found: list[Object] = body["spec"]["template"]["spec"]["containers"][0].get("env", [])
    return found


def _meant(body: Object) -> tuple[str, str, object]:
    """Return the fields that change when a client changes the object, but not when its status changes."""
    metadata = body["metadata"]
    specified = {key: value for key, value in body.items() if key not in ("metadata", "status")}
    return body["kind"], metadata["name"], (metadata.get("generation"), metadata["labels"], specified)
