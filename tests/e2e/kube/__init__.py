"""A real Kubernetes on one Linux machine without Docker, built from Go's module proxy.

Each node has its own network namespace. The package starts a `Cluster` of a number of nodes, with a kubeconfig and
methods that break and repair it. The fixtures of the end-to-end tests use it, and people use it by `python
tests/e2e/kube`. Invariant: everything that a run creates carries its random tag. The next run removes what a killed run
has left; a leftover that cannot be removed does not block the next run.
"""
