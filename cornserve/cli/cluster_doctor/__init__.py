"""`cornserve --context NAME doctor`: checks a Kubernetes cluster and the installation in a namespace."""
