"""What a follower does: fetch loops, one for each leader connection."""
