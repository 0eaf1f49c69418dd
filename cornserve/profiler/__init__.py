"""Measures the deployment options of apps, for plans [C App. C]."""
