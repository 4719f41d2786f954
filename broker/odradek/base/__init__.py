"""Foundations that every layer may use: errors, types, ports, settings and names."""
