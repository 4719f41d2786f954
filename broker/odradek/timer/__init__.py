"""Timing wheel and purgatory: operations that wait for a condition or a timeout."""
