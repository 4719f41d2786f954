"""`odradek topic`: topics and their partitions."""
