"""The gateway: HTTP in, graphs of unit-task invocations out.

It is stateless and scales out: apps and routes are watched in the store. `session` is one request's life, `apps` what
is deployed, `replica` the connection to an executor; `openai`, `native` and `admin` are the HTTP interfaces.
"""
