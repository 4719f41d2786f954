"""Clients that run as processes of their own, so that their work is in no broker's and not in the runner's way."""
