"""Tests the operator's permissions: they are minimal, and they do not allow the operator to gain more."""

from __future__ import annotations

import re

import pytest

from chart_files import RENDERED, Object, pod_specs, rendered, rules
from odradek_operator.kube.scopes import ALL_LEASE, LEASE
from odradek_operator.mirrors.mirror_names import mirror_objects_name
from odradek_operator.objects.names import FIELD_MANAGER, exporter, kafka, zookeeper
from odradek_operator.pipelines.pipeline_names import pipeline_objects_name
from odradek_operator.pipelines.pipeline_objects import DRIVER_VERBS

READING = {"get", "list", "watch"}
NODE_READER = "odradek-node-reader"
WITHOUT_NAMESPACE = {
    "nodes",
    "persistentvolumes",
    "namespaces",
    "storageclasses",
    "customresourcedefinitions",
    "clusterroles",
    "clusterrolebindings",
}


@pytest.mark.parametrize("name", RENDERED)
def test_nothing_is_given_wholesale(name: str) -> None:
    for role, rule in rules(rendered(name)):
        words = [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
        assert "*" not in "".join(words), role
        assert not {"escalate", "impersonate"} & {*rule["verbs"]}, role
        # Drivers of Pipelines need it for their executors, and could delete listed pods one by one as well.
        assert "deletecollection" not in rule["verbs"] or rule["resources"] == ["pods"], role
        assert not {"pods/exec", "serviceaccounts/token", "pods/eviction"} & {*rule["resources"]}, role


@pytest.mark.parametrize("name", RENDERED)
def test_secrets_are_read_by_their_names(name: str) -> None:
    """A role cannot limit names that do not exist yet."""
    given = [rule for _, rule in rules(rendered(name)) if "secrets" in rule["resources"]]
    assert given
    for rule in given:
        assert {*rule["resources"]} == {"secrets"}
        assert {*rule["verbs"]} == {"get", "create", "update"}


def test_the_guard_limits_the_secrets_that_are_written() -> None:
    guards = [each for each in rendered("default") if each["kind"] == "ValidatingAdmissionPolicy"]
    (guard,) = [each for each in guards if each["metadata"]["name"].endswith("-secrets")]
    (matched,) = guard["spec"]["matchConstraints"]["resourceRules"]
    assert matched["resources"] == ["secrets"]
    assert {*matched["operations"]} == {"CREATE", "UPDATE", "DELETE"}
    assert FIELD_MANAGER in guard["spec"]["validations"][0]["expression"]
    assert FIELD_MANAGER in guard["spec"]["validations"][1]["expression"]


@pytest.mark.parametrize("name", RENDERED)
def test_one_role_may_be_bound(name: str) -> None:
    binding = [rule for _, rule in rules(rendered(name)) if "bind" in rule["verbs"]]
    assert [rule["resourceNames"] for rule in binding] == [[NODE_READER]]
    assert [rule["resources"] for rule in binding] == [["clusterroles"]]


@pytest.mark.parametrize("name", RENDERED)
def test_what_others_get_is_what_the_operator_has(name: str) -> None:
    """Kubernetes refuses a Role with permissions that its creator lacks."""
    held = {
        (group, resource, verb)
        for _, rule in rules(rendered(name))
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if "resourceNames" not in rule
    }
    assert {("", "services", "get"), ("", "nodes", "get")} <= held
    drivers = {("", "pods", verb) for verb in DRIVER_VERBS}
    assert drivers <= held


@pytest.mark.parametrize("name", ["default", "everything"])
def test_drivers_may_not_run_pods_with_other_accounts(name: str) -> None:
    guards = [each for each in rendered(name) if each["kind"] == "ValidatingAdmissionPolicy"]
    (guard,) = [each for each in guards if each["metadata"]["name"].endswith("-pipelines")]
    (matched,) = guard["spec"]["matchConstraints"]["resourceRules"]
    assert (matched["resources"], matched["operations"]) == (["pods"], ["CREATE"])
    account = pipeline_objects_name("demo")
    (condition,) = guard["spec"]["matchConditions"]
    found = re.search(r"username.matches\('(.*)'\)", condition["expression"])
    assert found is not None
    assert re.fullmatch(found[1], f"system:serviceaccount:shop:{account}")
    allowed = re.search(r"matches\('(.*)'\)", guard["spec"]["validations"][0]["expression"])
    assert allowed is not None
    assert re.fullmatch(allowed[1], account)
    assert not re.fullmatch(allowed[1], "demo-kafka")


@pytest.mark.parametrize("name", ["default", "everything"])
def test_deployments_may_have_the_accounts_of_clusters_and_mirrors(name: str) -> None:
    guards = [each for each in rendered(name) if each["kind"] == "ValidatingAdmissionPolicy"]
    (guard,) = [each for each in guards if each["metadata"]["name"].endswith("-pods")]
    allowed = re.search(r"matches\('(.*)'\)", guard["spec"]["validations"][0]["expression"])
    assert allowed is not None
    for account in (mirror_objects_name("demo"), kafka("demo"), zookeeper("demo"), exporter("demo")):
        assert re.fullmatch(allowed[1], account)
    assert not re.fullmatch(allowed[1], pipeline_objects_name("demo"))
    assert not re.fullmatch(allowed[1], "default")


def test_with_a_list_of_namespaces_nothing_in_others_is_touched() -> None:
    found = rendered("namespaced")
    for role, rule in rules(found):
        if role.startswith("ClusterRole/"):
            assert {*rule["resources"]} <= WITHOUT_NAMESPACE, role
            assert {*rule["resources"]} == {"clusterrolebindings"} or {*rule["verbs"]} <= {*READING, "bind"}, role
    assert {each["metadata"]["namespace"] for each in found if each["kind"] == "Role"} == {
        "orders",
        "analytics",
    }


@pytest.mark.parametrize("name", RENDERED)
def test_no_lease_of_others_can_be_read_or_changed(name: str) -> None:
    leases = [rule for _, rule in rules(rendered(name)) if rule["resources"] == ["leases"]]
    assert leases
    for rule in leases:
        assert rule["verbs"] == ["create"] or {*rule["resourceNames"]} == {LEASE, ALL_LEASE.name}


def test_the_same_is_allowed_in_all_namespaces_as_in_a_listed_one() -> None:
    """Except for monitoring, which that release disables."""
    everywhere = {str(rule) for role, rule in rules(rendered("default")) if role.startswith("ClusterRole/")}
    listed = {str(rule) for role, rule in rules(rendered("namespaced")) if role.startswith("Role/orders/")}
    assert listed
    assert listed <= everywhere


def test_the_node_reader_reads_nodes() -> None:
    (reader,) = [each for each in rendered("default") if each["metadata"]["name"] == NODE_READER]
    assert reader["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]


def test_the_node_reader_stays_for_brokers_that_outlive_the_release() -> None:
    (reader,) = [each for each in rendered("default") if each["metadata"]["name"] == NODE_READER]
    assert reader["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_the_guard_is_about_this_account() -> None:
    policies = [each for each in rendered("default") if each["kind"] == "ValidatingAdmissionPolicy"]
    bindings = [each for each in rendered("default") if each["kind"] == "ValidatingAdmissionPolicyBinding"]
    assert {each["metadata"]["name"] for each in policies} == {each["spec"]["policyName"] for each in bindings}
    for policy in policies:
        assert policy["spec"]["failurePolicy"] == "Fail"
        (condition,) = policy["spec"]["matchConditions"]
        assert "system:serviceaccount:odradek-system:odradek-operator" in condition["expression"]


@pytest.mark.parametrize("name", RENDERED)
def test_pods_satisfy_the_restricted_standard(name: str) -> None:
    pods = list(pod_specs(rendered(name)))
    assert len(pods) == (3 if name == "everything" else 2)
    for pod, spec in pods:
        assert spec["securityContext"]["runAsNonRoot"] is True, pod
        assert spec["securityContext"]["runAsUser"] == 10001, pod
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, pod
        assert not {"hostNetwork", "hostPID", "hostIPC"} & {*spec}, pod
        for container in spec["containers"]:
            own = container["securityContext"]
            assert own["allowPrivilegeEscalation"] is False, pod
            assert own["readOnlyRootFilesystem"] is True, pod
            assert own["capabilities"] == {"drop": ["ALL"]}, pod


@pytest.mark.parametrize("name", RENDERED)
def test_the_operators_service_leads_to_operators_alone(name: str) -> None:
    found = rendered(name)
    service, deployment = of_operator(found, "Service"), of_operator(found, "Deployment")
    selector = service["spec"]["selector"].items()
    (check,) = [each for each in found if each["kind"] == "Pod"]
    assert selector <= deployment["spec"]["template"]["metadata"]["labels"].items()
    assert not selector <= check["metadata"]["labels"].items()
    for other in found:
        if other["kind"] == "Deployment" and other is not deployment:
            assert not selector <= other["spec"]["template"]["metadata"]["labels"].items()


def of_operator(found: list[Object], kind: str) -> Object:
    """The only object of a kind that belongs to the operator."""
    label = "app.kubernetes.io/component"
    (one,) = [each for each in found if each["kind"] == kind and each["metadata"]["labels"][label] == "operator"]
    return one


@pytest.mark.parametrize("name", RENDERED)
def test_the_operator_is_what_dashboards_look_for(name: str) -> None:
    deployment = of_operator(rendered(name), "Deployment")
    template = deployment["spec"]["template"]
    (container,) = template["spec"]["containers"]
    assert template["metadata"]["labels"]["strimzi.io/kind"] == "cluster-operator"
    assert container["name"] == "strimzi-cluster-operator"
    assert container["ports"] == [{"name": "http", "containerPort": 8080}]
