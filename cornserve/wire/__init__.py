"""Authenticated connections between the processes of an instance.

`handshake` proves that both ends have the instance's secret, `listener.ConnectionListener` accepts connections,
`connection.MessageConnection` is one end of a connection that carries protobuf messages, `codec.Codec` defines the
messages of a protocol, and `invocations` those of executors. `cornserve.transport` defines its own messages.
"""
