"""A real Kubernetes on one Linux machine, without Docker: built from Go's module proxy, one network namespace a node.

Enters: a number of nodes. Leaves: a `Cluster` with a kubeconfig, and ways to hurt it. Called by the fixtures of the
end-to-end tests and, for people, by `python tests/e2e/kube`. Invariant: whatever a run makes carries its random tag,
and what a run that died left behind is taken away by the next one, which no leftover can hinder.
"""
