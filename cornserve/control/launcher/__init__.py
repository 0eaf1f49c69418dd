"""What keeps executor replicas alive: `base` is the interface, each other module or package one implementation."""
