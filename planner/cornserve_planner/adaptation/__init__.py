"""Changes of a running plan: other mixtures of its cells, the order of starts and stops, and another workload."""
