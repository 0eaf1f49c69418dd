"""The execution of one request.

`session` records and replays the request's task. `dispatcher` runs its invocations: `placement` selects their replicas,
`retry_policy` is the rule by which they run again, `dataflow` has the consumers of each invocation, and
`invocation_execution` handles the events of one invocation. `replica_pool` and `replica_connection` manage the
connections to executors.
"""
