"""Recovery of one log after a shutdown or a crash."""
