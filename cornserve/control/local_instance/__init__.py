"""The instance on one machine: the supervisor of its processes, its options, its files and its end."""
