"""What clients need in tests beside the fake cluster: coordinators that answer as a test prescribes, and mirrors."""
