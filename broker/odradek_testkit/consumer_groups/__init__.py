"""Consumer groups of the new protocol (KIP-848) in tests."""
