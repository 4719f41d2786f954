"""Builders of the Kubernetes objects of one cluster, without I/O."""
