"""Charges clients for what they use, and says how long they have to wait (docs/design/0024)."""
