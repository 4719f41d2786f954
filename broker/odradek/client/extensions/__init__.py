"""What applications plug into producers and consumers."""
