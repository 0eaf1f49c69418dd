"""Two processes that exchange tensors, and the measurements that they are compared with."""
