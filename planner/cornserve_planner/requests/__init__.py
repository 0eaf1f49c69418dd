"""A request: its arrival time and its sizes, without content."""
