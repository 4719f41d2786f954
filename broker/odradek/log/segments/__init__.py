"""Segments of a log: files, indexes, and replacement that survives a crash."""
