"""Latency targets: batch sizes and limits of utilization that meet them."""
