"""Group coordination: membership, committed offsets and producer ids, kept in internal topics and read back."""
