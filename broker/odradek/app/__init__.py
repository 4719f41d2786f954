"""Assembly of one broker process: the only place that builds real objects."""
