"""The measurements of `benchmarks/planner.py`."""
