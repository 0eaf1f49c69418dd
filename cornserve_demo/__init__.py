"""Tiny models that draw colored shapes and name them, and the scripts that train them."""
