"""Deterministic simulation of a cluster: production brokers and clients in an environment that a seed determines."""
