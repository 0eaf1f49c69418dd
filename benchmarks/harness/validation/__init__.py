"""Comparisons of simulations with theory, with other implementations and with real executors."""
