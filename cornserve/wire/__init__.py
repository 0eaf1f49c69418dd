"""What processes of Cornserve say to each other often: protobuf messages on plain TCP connections.

A `line` is one connection; whoever takes them has a `reception`. Here are also the two sides of those over which
`invocations` travel; those of the data plane are its own (`cornserve.transport.ends`).
"""
