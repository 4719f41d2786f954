"""Timing wheel and purgatory: what waits for a condition or a time limit."""
