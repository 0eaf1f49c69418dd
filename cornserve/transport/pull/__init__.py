"""Copies tensors between the slabs of two nodes."""
