"""Roles, high watermark, in-sync set, fetch sessions and the follower's fetch loop."""
