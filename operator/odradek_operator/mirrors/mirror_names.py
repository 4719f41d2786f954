"""The names, labels, annotations, ports and paths of a Mirror's Kubernetes objects. Pure."""

from __future__ import annotations

from typing import Final

from odradek_operator.objects.names import (
    COMPONENT_LABEL,
    CONFIG_FOLDER,
    FIELD_MANAGER,
    MANAGED_BY_LABEL,
    NAMESPACE_LABEL,
)

MIRROR_LABEL: Final = "odradek.dev/mirror"
"""Label on every object and pod of a Mirror. Its objects do not have the label of a Cluster: the Cluster would delete
them as obsolete."""
COMPONENT: Final = "mirror"
SPECIFICATION: Final = "odradek.dev/mirror-specification"
"""Annotation of the pod template: the hash of the file and of the versions of the mounted Secrets."""
CONTAINER: Final = "mirror"

MIRROR_FILE: Final = "mirror.yaml"
MIRROR_PATH: Final = f"{CONFIG_FOLDER}/{MIRROR_FILE}"
LOGINS_FOLDER: Final = "/etc/odradek-logins"
"""Folder with one folder for each connection: `target`, and `source-NAME`."""
TARGET: Final = "target"


def mirror_objects_name(mirror: str) -> str:
    """Return the name of all objects.

    The admission policy of the chart recognizes the ServiceAccount by the end of its name, so it must never change.
    """
    return f"{mirror}-odradek-mirror"


def login_folder(side: str) -> str:
    """Return the folder with the login of a connection. `side`: `TARGET`, or what `source_side` returns."""
    return f"{LOGINS_FOLDER}/{side}"


def source_side(source: str) -> str:
    """Return the name of the connection to a source."""
    return f"source-{source}"


def mirror_selector(mirror: str) -> dict[str, str]:
    """Return the labels that select the pods of a Mirror."""
    return {MIRROR_LABEL: mirror}


def mirror_labels(mirror: str) -> dict[str, str]:
    """Return the labels of every object and pod of a Mirror."""
    return {
        "app.kubernetes.io/name": "odradek",
        "app.kubernetes.io/instance": mirror,
        MANAGED_BY_LABEL: FIELD_MANAGER,
        COMPONENT_LABEL: COMPONENT,
        MIRROR_LABEL: mirror,
    }


def mirror_object_labels(mirror: str, namespace: str) -> dict[str, str]:
    """Return the labels of objects other than pods."""
    return {**mirror_labels(mirror), NAMESPACE_LABEL: namespace}


MIRROR_LABELS: Final = frozenset(mirror_labels(""))
"""Labels of pods that the operator sets."""
