"""Deliberate bugs that prove that the checkers of the simulation find violations."""
