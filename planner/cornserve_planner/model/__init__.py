"""Models: executor graph, request types, the problem of planning them, and its solution."""
