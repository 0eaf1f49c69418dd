"""Protobuf messages over plain TCP connections between the processes of Cornserve.

`connection.MessageConnection` is one end of a connection, `listener.MessageListener` accepts connections, and
`invocations` defines the messages between gateways and executors. `cornserve.transport` defines its own messages.
"""
