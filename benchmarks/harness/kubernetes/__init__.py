"""A Kubernetes control plane with fake nodes, and what Cornserve costs there."""
