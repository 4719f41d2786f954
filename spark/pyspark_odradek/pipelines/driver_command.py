"""The command of a Spark driver that runs in its own pod, and the template of its executors. Pure functions.

The driver runs in client mode in a pod that somebody else creates: a Job, a Deployment or the operator. It creates its
executors in its namespace. They belong to the driver's pod, so Kubernetes deletes them with it. `kubernetes_driver` is
the program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from odradek.base.errors import ConfigError
from pyspark_odradek.pipelines.pipeline_spec import SparkResources

MASTER: Final = "k8s://https://kubernetes.default.svc"
USER_ID: Final = 10001
DRIVER_LABEL: Final = "odradek.dev/driver"
"""Label of executors with the name of the driver's pod."""

_VARIABLES: Final = ("POD_NAME", "POD_NAMESPACE", "POD_IP", "IMAGE")


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverPod:
    """The pod that the driver runs in, and the image of its executors."""

    name: str
    namespace: str
    address: str
    image: str

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> DriverPod | None:
        """Return the pod from POD_NAME, POD_NAMESPACE, POD_IP and IMAGE; None if no variable is set.

        Raises `ConfigError` if only some of them are set.
        """
        missing = [name for name in _VARIABLES if not environment.get(name)]
        if len(missing) == len(_VARIABLES):
            return None
        if missing:
            needed = ", ".join(_VARIABLES)
            raise ConfigError(f"the environment variable {missing[0]} is not set; the driver needs {needed}")
        name, namespace, address, image = (environment[variable] for variable in _VARIABLES)
        return cls(name=name, namespace=namespace, address=address, image=image)


def submit_command(
    pod: DriverPod | None,
    resources: SparkResources,
    application: str,
    arguments: Sequence[str],
    *,
    template: str | None = None,
) -> list[str]:
    """Return the spark-submit command that runs the file `application` in this process' pod.

    Without a pod, the tasks run in the driver. `template` is the path of the pod template of the executors.
    `resources.conf` has precedence over the other settings.
    """
    if pod is None:
        settings = {"spark.master": "local[*]"}
    else:
        settings = {
            "spark.master": MASTER,
            "spark.kubernetes.namespace": pod.namespace,
            "spark.kubernetes.driver.pod.name": pod.name,
            "spark.kubernetes.container.image": pod.image,
            "spark.kubernetes.container.image.pullPolicy": "IfNotPresent",
            # Executors connect to these addresses. The address of the pod works without a Service.
            "spark.driver.host": pod.address,
            "spark.driver.bindAddress": pod.address,
            **_executor_settings(resources),
        }
        if template is not None:
            settings["spark.kubernetes.executor.podTemplateFile"] = template
    settings |= {"spark.driver.memory": resources.driver_memory, "spark.jars.ivy": "/tmp/ivy", **resources.conf}
    conf = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    return ["spark-submit", "--deploy-mode", "client", *conf, application, *arguments]


def _executor_settings(resources: SparkResources) -> dict[str, str]:
    settings = {
        "spark.executor.memory": resources.executor_memory,
        "spark.executor.cores": str(resources.executor_cores),
    }
    if resources.executor_cpu is not None:
        settings["spark.kubernetes.executor.request.cores"] = resources.executor_cpu
    if resources.min_executors == resources.max_executors:
        return {**settings, "spark.executor.instances": str(resources.max_executors)}
    return {
        **settings,
        "spark.dynamicAllocation.enabled": "true",
        # Kubernetes has no external shuffle service: an executor stays as long as its shuffle files are needed.
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": str(resources.min_executors),
        "spark.dynamicAllocation.initialExecutors": str(resources.min_executors),
        "spark.dynamicAllocation.maxExecutors": str(resources.max_executors),
    }


def executor_template(
    pod: DriverPod, *, claims: Mapping[str, str], labels: Mapping[str, str], same_node: bool
) -> dict[str, Any]:
    """Return a pod template that satisfies the Pod Security Standard "restricted".

    `claims` maps names of PersistentVolumeClaims to the paths where they are mounted. With `same_node`, executors run
    on the node of the driver's pod, which must have `labels`: a ReadWriteOnce volume can only be mounted there.
    """
    volumes: list[dict[str, Any]] = [{"name": "tmp", "emptyDir": {}}]
    mounts = [{"name": "tmp", "mountPath": "/tmp"}]
    for number, (claim, path) in enumerate(claims.items()):
        volumes.append({"name": f"claim-{number}", "persistentVolumeClaim": {"claimName": claim}})
        mounts.append({"name": f"claim-{number}", "mountPath": path})
    term = {"labelSelector": {"matchLabels": dict(labels)}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": {**labels, DRIVER_LABEL: pod.name[:63].rstrip("-.")}},
        "spec": {
            **({"affinity": affinity} if same_node else {}),
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER_ID,
                "runAsGroup": USER_ID,
                "fsGroup": USER_ID,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "spark",
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "volumeMounts": mounts,
                }
            ],
            "volumes": volumes,
        },
    }
