"""The client of the Kubernetes API: requests, informers and leader election. Independent of the other packages."""
