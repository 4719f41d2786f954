"""Administration: topics, elections, reassignments, log directories and features."""
