"""Consumer groups: membership, rebalancing and committed offsets."""
