"""Checks the files of forms."""

from __future__ import annotations

from cornserve.gateway.endpoints.read_form import Upload
from cornserve.gateway.errors import ApiError
from cornserve.gateway.media.errors import MediaError
from cornserve.gateway.media.inspection import RULES
from cornserve.limits import Limits
from cornserve_tasklib.media import Media, Modality


async def inspect_upload(file: Upload, modality: Modality, field: str, limits: Limits) -> Media:
    """Returns the uploaded medium. Its content determines the format: names and types of uploads are often wrong.

    Raises an `ApiError` (400) with the field of the form.
    """
    rules = RULES[modality]
    try:
        rules.check_bytes(file.size, limits)
        return await rules.inspect(file.take(), limits, field)
    except MediaError as error:
        raise ApiError(400, f"{field}: {error.message}", param=field, code=error.code(modality)) from error
