"""Kit of the operator's tests: a Kubernetes API server in memory, and a cluster around the operator."""
