"""Processes that load and read the cluster of a fault run."""
