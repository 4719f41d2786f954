"""Rules that allow or deny operations on resources (KIP-11, KIP-290)."""
