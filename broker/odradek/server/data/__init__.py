"""Produce, Fetch and the other APIs on records."""
