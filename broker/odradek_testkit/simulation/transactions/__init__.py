"""Transactions of a simulation: plan, clients, history and verdict."""
