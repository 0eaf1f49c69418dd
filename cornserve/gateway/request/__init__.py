"""One request's life, from the outside in.

`session` has the task that is recorded and replayed, `dispatch` the invocations it has recorded,
`execution` the attempts of one of them, `replicas` and `replica` the executors' connections.
"""
