"""Where records live: `base` is the interface, each other module one implementation."""
