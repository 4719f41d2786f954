"""Options of the source and of the sink: names, defaults, rules and errors."""
