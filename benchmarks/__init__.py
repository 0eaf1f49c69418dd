"""The benchmarks behind docs/performance.md. Run a script with --help for its description."""
