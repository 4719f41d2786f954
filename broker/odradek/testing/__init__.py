"""Test kit: real and simulated surroundings of the broker. Shipped, and imported by tests only."""
