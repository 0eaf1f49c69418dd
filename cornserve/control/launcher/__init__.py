"""Launchers keep executor replicas running: `base` defines the interface, `local` implements it for one machine."""
