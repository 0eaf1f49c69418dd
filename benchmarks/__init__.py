"""Where the numbers in docs/performance.md come from. Each script says what it measures: run it with --help."""
