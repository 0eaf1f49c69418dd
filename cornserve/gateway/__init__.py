"""The gateway: HTTP in, graphs of unit-task invocations out.

It is stateless and scales out: apps and routes are watched in the store (`apps`). A request comes in through `entry`,
is understood by one of the `endpoints`, has its images from `media`, lives in `request`, and is counted and traced
by `observe`.
"""
