"""Crash torture of logs: long random runs, processes that are killed, files that are damaged."""
