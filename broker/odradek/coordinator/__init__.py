"""The coordinators of groups and transactions: replicated state machines, and the runtime that they share."""
