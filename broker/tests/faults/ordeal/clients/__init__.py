"""Processes that write to and read from the cluster during a fault run."""
