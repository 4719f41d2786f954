"""Test kit: a Kubernetes API server in memory. Shipped, and imported by tests only."""
