"""The source in a task: from fetched bytes to Arrow batches."""
