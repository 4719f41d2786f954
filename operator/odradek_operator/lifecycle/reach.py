"""Finds the nodes that can use a volume, by its node affinity and the labels of nodes. Pure.

Used by `observed_cluster`. An expression that is not understood matches no node, which is the safe assumption.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek_operator.lifecycle.parsing import Object, items, mapping, text, texts


def reach(volume: Object, nodes: Iterable[Object]) -> frozenset[str] | None:
    """Return the nodes that the volume's affinity allows; None if it has none, so that all nodes can use it."""
    terms = items(volume, "spec", "nodeAffinity", "required", "nodeSelectorTerms")
    if not terms:
        return None
    return frozenset(text(node, "metadata", "name") for node in nodes if any(_matches(term, node) for term in terms))


def _matches(term: Object, node: Object) -> bool:
    """Whether all expressions of a term match. A term without expressions matches no node, as in Kubernetes."""
    labels = mapping(node, "metadata", "labels")
    expressions = items(term, "matchExpressions")
    fields = items(term, "matchFields")
    own = {"metadata.name": text(node, "metadata", "name")}
    return bool(expressions or fields) and all(
        [*(_holds(one, labels) for one in expressions), *(_holds(one, own) for one in fields)]
    )


def _holds(expression: Object, labels: Mapping[str, object]) -> bool:
    key, values = text(expression, "key"), texts(expression, "values")
    match text(expression, "operator"):
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case _:
            return False
