"""What a running cluster must go through without losing a record: rolls, losses, many topics, operators that die."""
