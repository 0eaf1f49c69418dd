"""What the benchmarks share: the machine, a local instance, a load generator and a sampling profiler."""
