"""Tests that a cluster loses no record in rolling restarts and failures, with many topics, and when operators die."""
