"""Stores of app records: `base` defines the interface, `sqlite` implements it in one file."""
