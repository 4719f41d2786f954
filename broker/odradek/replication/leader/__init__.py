"""What a leader does: reads for fetches, ISR changes, delayed operations and DeleteRecords."""
