"""Deterministic simulation of a whole cluster: production brokers and clients, and a world that is none but a seed."""
