"""The control plane: what should run, what runs, and how the one becomes the other.

`store` holds apps, `launcher` keeps executor replicas alive, `controller` reconciles the two, one
`TaskManager` per executor group.
"""
