"""The wire protocol: API table, primitives, typed requests and responses, and the hand-written Produce and Fetch."""
