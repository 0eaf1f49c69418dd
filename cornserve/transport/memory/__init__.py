"""The slab: one file in shared memory that holds a process's tensors."""
