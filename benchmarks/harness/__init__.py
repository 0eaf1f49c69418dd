"""Common code of the benchmarks: machine information, a local instance, a load generator and a sampling profiler."""
