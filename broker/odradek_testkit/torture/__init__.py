"""Crash tests of logs: long random runs, killed processes, and damaged files."""
