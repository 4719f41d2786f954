"""Clients that run in separate processes, so that they do not slow down the brokers or the runner."""
