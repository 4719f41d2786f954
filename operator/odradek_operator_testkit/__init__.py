"""Test kit of the operator: an in-memory Kubernetes API server, and a simulation of the operator's environment."""
