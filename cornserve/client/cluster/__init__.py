"""The way to a gateway in a Kubernetes cluster: a local port that forwards to one of its pods through the API server.

The Kubernetes client is a slow import. Other modules therefore import this one, which imports it when it is used.
"""

from __future__ import annotations

from dataclasses import replace

from cornserve.client.address import ClusterSelection, GatewayAddress


def open_cluster(
    context: str | None, namespace: str | None, api_key: str | None, admin_token: str | None
) -> GatewayAddress:
    """Opens a tunnel to a gateway, and returns its address. `Client.for_cluster` documents arguments and errors."""
    from cornserve.client.cluster.tunnel import ClusterTunnel

    tunnel = ClusterTunnel(context, namespace)
    end = tunnel.open()
    try:
        address = GatewayAddress.resolve(end.url, api_key, admin_token or end.admin_token)
    except BaseException:
        tunnel.close()
        raise
    return replace(address, place=end.place, close=tunnel.close, cluster=ClusterSelection(context, namespace))
