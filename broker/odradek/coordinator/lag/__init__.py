"""The lag of the groups that a broker coordinates, for its metrics (docs/design/0027)."""
