"""The group protocol of KIP-848 on the side of a consumer, `group.protocol=consumer`."""
