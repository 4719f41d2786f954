"""The producer: batches, sequence numbers and the send loop."""
