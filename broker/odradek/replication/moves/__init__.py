"""Moves of replicas between log directories of one broker (KIP-113)."""
