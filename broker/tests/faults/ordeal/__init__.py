"""The fault run: injects random faults into a real cluster under load, measures their effects, and checks the
records."""
