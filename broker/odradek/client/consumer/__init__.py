"""The consumer: fetching, positions and group membership."""
