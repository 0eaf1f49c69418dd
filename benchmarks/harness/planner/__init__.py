"""What `benchmarks/planner.py` measures on, and how."""
