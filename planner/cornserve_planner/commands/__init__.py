"""`cornserve plan` and its subcommands."""
