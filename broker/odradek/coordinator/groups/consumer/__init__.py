"""Consumer groups of the new protocol (KIP-848): the coordinator computes the assignment, and members follow it."""
