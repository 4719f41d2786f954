"""Incremental fetch sessions (KIP-227) on both sides."""
