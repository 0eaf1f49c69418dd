"""The control plane.

`store` keeps app records. `launcher` runs executor replicas. The controller reconciles the two, with one `TaskManager`
per executor group.
"""
