"""Decisions over time: which pod restarts, which replicas move, which claim is given up. All pure."""
