"""The command that starts an attempt of an invocation at a replica."""

from __future__ import annotations

from cornserve.gateway.http.request_id import RequestIds
from cornserve.gateway.request.dataflow import Dataflow
from cornserve.gateway.request.invocation_execution import InvocationExecution
from cornserve.task.references import Blob
from cornserve.wire.invocations import StartCommand


def start_command(
    execution: InvocationExecution, ids: RequestIds, dataflow: Dataflow, *, arrived_us: int, seconds: float
) -> StartCommand:
    """Returns the command, with the endpoints of the execution's producers.

    Args:
        arrived_us: when the request arrived, in microseconds since the epoch.
        seconds: the time until the deadline.
    """
    invocation = execution.invocation
    command = StartCommand()
    start = command.message.start
    start.request_id = ids.unique
    if ids.public != ids.unique:
        start.client_request_id = ids.public
    start.invocation = invocation.index
    start.attempt = execution.attempt
    start.timeout_ms = max(1, int(1000 * seconds))
    start.request = invocation.request
    start.tokens = invocation.size.tokens
    start.arrived_us = arrived_us
    start.due_us = execution.due_us
    for reference in invocation.inputs:
        if isinstance(reference, Blob):
            command.add_blob(reference.data)
        else:
            producer = dataflow.executions[reference.invocation]
            pending = command.add_pending()
            pending.invocation, pending.output = reference.invocation, reference.output
            pending.attempt = producer.attempt
            pending.endpoint = "" if producer.replica is None else producer.replica.endpoint
    if execution.handed_over_state is not None:
        execution.handed_over_state.add_to(command)
    start.outputs.extend(execution.streams)
    start.delivered.extend(execution.delivered())
    if invocation.tensor_stream_names:
        start.outputs.extend(dataflow.requested_streams(execution))
    return command
