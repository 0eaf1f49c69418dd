"""A Kubernetes cluster on one machine for tests: its programs, its control plane and its nodes."""
