"""Experiments of the papers that the simulator repeats."""
