"""The Kubernetes resources of the records: `App` and `AppRoute`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from cornserve.app.record import AppStatus, Route, RouteStatus
from cornserve.app.spec import AppSpec
from cornserve.control.store import base
from cornserve.control.store.kubernetes_codec import OwnerReference, ResourceCodec
from cornserve.kubernetes.resources import APP_ROUTES, APPS
from cornserve.kubernetes_resources.route_resource import (
    decode_route,
    decode_route_status,
    encode_route,
    encode_route_status,
)
from cornserve.kubernetes_resources.spec_mapping import decode_spec, encode_spec
from cornserve.kubernetes_resources.status_mapping import decode_status, encode_status

_ROUTE_CODEC: ResourceCodec[Route, RouteStatus] = ResourceCodec(
    type=APP_ROUTES,
    encode_spec=lambda route, current: encode_route(route),
    decode_spec=decode_route,
    encode_status=lambda status, current: encode_route_status(status),
    decode_status=decode_route_status,
    owner=lambda name, route: OwnerReference(APPS, name, route.app_uid),
)


def record_codecs(url: str = "") -> Mapping[str, ResourceCodec[Any, Any]]:
    """Returns the conversion of each kind of record.

    Args:
        url: the URL of the gateways, which the status of apps contains.
    """
    apps: ResourceCodec[AppSpec, AppStatus] = ResourceCodec(
        type=APPS,
        encode_spec=encode_spec,
        decode_spec=decode_spec,
        encode_status=partial(encode_status, url=url),
        decode_status=decode_status,
    )
    return {base.APPS.name: apps, base.ROUTES.name: _ROUTE_CODEC}
