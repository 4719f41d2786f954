"""Producer state of a log: sequence numbers, open transactions and snapshots."""
