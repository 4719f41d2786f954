"""Partition reassignment (KIP-455): decisions and their execution."""
