"""Loads the inputs of a plan, and builds the planning problem."""
