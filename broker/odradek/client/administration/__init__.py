"""The parts of the admin client, by subject."""
