"""Replication: roles, high watermarks, in-sync replicas, fetch sessions and the follower's fetch loop."""
