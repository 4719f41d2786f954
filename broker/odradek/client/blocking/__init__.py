"""The client library for threads: one event loop in a background thread."""
