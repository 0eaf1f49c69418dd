"""Measurements of the options of apps, from which plans are made."""
