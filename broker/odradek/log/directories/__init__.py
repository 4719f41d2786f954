"""Log directories of a broker: locks, checkpoints, loading, moves, disk space and periodic work."""
