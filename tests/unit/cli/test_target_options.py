"""The options of `cornserve deploy` for latency targets."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from cornserve.cli.commands import app
from tests.unit.http_server import StubServer, json_response


def test_targets_are_part_of_the_spec(cli: CliRunner, server: StubServer) -> None:
    server.on("PUT /admin/v1/apps/b", json_response({"error": {"message": "stored"}}, 400))

    cli.invoke(app, ["deploy", "a/b", "--ttft", "0.5", "--e2e", "3", "--admission", "--url", server.url])
    targets = server.requests[-1][1]["policies"]["targets"]
    cli.invoke(app, ["deploy", "a/b", "--tbt", "0.05", "--url", server.url])

    assert targets == {"ttft_seconds": 0.5, "end_to_end_seconds": 3.0, "admission": True}
    assert server.requests[-1][1]["policies"]["targets"] == {"tbt_seconds": 0.05}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--e2e", "0"], "--e2e: must be greater than or equal to 0.001, not 0.0"),
        (["--ttft", "nan"], "--ttft: must be"),
        (["--ttft", "1", "--tbt", "-1"], "--tbt: must be greater than or equal to 0.001, not -1.0"),
        (["--tbt", "0.1", "--admission"], "--admission needs a target: give --ttft or --e2e"),
        (["--admission"], "--admission needs a target: give --ttft or --e2e"),
    ],
)
def test_invalid_targets_are_refused(cli: CliRunner, options: list[str], message: str) -> None:
    result = cli.invoke(app, ["deploy", "a/b", *options, "--url", "http://127.0.0.1:1"])

    assert result.exit_code == 1
    assert message in result.output
