"""Log compaction: decisions, the pass in a worker process, and the cleaner that schedules it."""
