"""The execution of one request.

`session` records and replays the request's task. `dispatcher` selects replicas for its invocations and handles their
failures, `invocation_execution` handles the events of one invocation, and `dataflow` records the consumers of each
invocation. `replica_pool` and `replica_connection` manage the connections to executors.
"""
