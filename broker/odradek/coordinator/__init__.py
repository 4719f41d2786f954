"""The group coordinator: membership, committed offsets and producer ids."""
