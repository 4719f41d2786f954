"""Validation of what a producer or a leader sends, before it goes into the log."""
