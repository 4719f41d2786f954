"""What the followers of topics and groups share: rules for access rules and checkpoints, and topics with state."""
