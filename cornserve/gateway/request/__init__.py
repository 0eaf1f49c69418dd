"""The execution of one request.

`session` records and replays the request's task. `dispatcher` decides where its invocations run, and what happens when
one fails; `invocation_execution` handles the events of one invocation; `dataflow` records which invocations consume the
outputs of which. `replica_pool` and `replica_connection` manage the connections to executors.
"""
