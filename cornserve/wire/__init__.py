"""Authenticated connections between the processes of an instance.

`handshake` proves that both ends have the instance's secret, `listener.ConnectionListener` accepts connections,
`connection.MessageConnection` is one end of a connection that carries protobuf messages, and `invocations` defines the
messages of executors. `cornserve.transport` defines its own messages.
"""
