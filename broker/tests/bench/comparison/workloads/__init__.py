"""What is done to a system in a scenario: each a frozen description with the few steps the runner calls."""
