"""Which nodes a volume can be used on, by its node affinity and the nodes' labels. Pure.

Enters: persistent volumes and nodes as the API server gives them. Leaves: names of nodes. Called by `observed_cluster`
alone. An expression that cannot be read matches no node: what follows from a volume's reach then errs on the careful
side.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek_operator.lifecycle.parsing import Object, items, mapping, text, texts


def reach(volume: Object, nodes: Iterable[Object]) -> frozenset[str] | None:
    """The nodes that the volume's affinity allows; None for a volume without one, which all nodes can use."""
    terms = items(volume, "spec", "nodeAffinity", "required", "nodeSelectorTerms")
    if not terms:
        return None
    return frozenset(text(node, "metadata", "name") for node in nodes if any(_matches(term, node) for term in terms))


def _matches(term: Object, node: Object) -> bool:
    """All expressions of a term must hold; a term without any holds nowhere, as in Kubernetes."""
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
