"""Pipelines for tests, as the operator reads them from objects. Pure."""

from __future__ import annotations

from typing import Any

from odradek_operator.crds import Pipeline, read_object

UID = "7d1c0c5e-54a7-4b39-9f0b-7a9b1b0f6f22"


def pipeline(**spec: Any) -> Pipeline:
    """Return a Pipeline as the operator reads it. A field that is None is left out."""
    whole: dict[str, Any] = {
        "cluster": "demo",
        "source": {"topics": ["departures"]},
        "target": {"path": "/archive/departures"},
        "checkpoint": {"path": "s3a://bucket/checkpoint"},
        **spec,
    }
    found = read_object(
        {
            "apiVersion": "odradek.dev/v1",
            "kind": "Pipeline",
            "metadata": {"name": "departures", "namespace": "shop", "uid": UID},
            "spec": {name: value for name, value in whole.items() if value is not None},
        }
    )
    assert isinstance(found, Pipeline)
    return found
