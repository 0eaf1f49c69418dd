"""What is counted, traced and logged of requests and replicas."""
