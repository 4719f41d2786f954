"""Classic groups (before KIP-848): clients compute the assignment, and every change stops the whole group."""
