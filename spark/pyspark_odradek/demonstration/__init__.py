"""The parts of `odradek demo`: real flights as events, child processes, and an independent check of the result."""
