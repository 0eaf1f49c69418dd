"""Matches the results of tools in a request with the calls before them."""

from __future__ import annotations

from collections import Counter

from cornserve.gateway.errors import ApiError


def match_result(missing: Counter[str], call_id: str, path: str) -> None:
    """Removes a call from those whose results are missing.

    Args:
        missing: the number of calls by id. Clients may use an id again after its result.
        path: that of the id in the request.

    Raises:
        ApiError: 400. No call before it has the id, or the call has a result already.
    """
    if not missing[call_id]:
        problem = "an earlier result also has" if call_id in missing else "no call before it has"
        remedy = "remove one of them" if call_id in missing else "add the call"
        message = f"{path}: {problem} the id {call_id[:80]!r}: {remedy}"
        raise ApiError(400, message, param=path, code="invalid_value")
    missing[call_id] -= 1
