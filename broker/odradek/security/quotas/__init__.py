"""Quotas of clients: whom they apply to, and rates over time (KIP-13, KIP-55, KIP-124, KIP-599, KIP-612)."""
