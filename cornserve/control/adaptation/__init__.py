"""Adaptation of apps to their load: cells of a plan, other plans, and replicas of apps without a plan."""
