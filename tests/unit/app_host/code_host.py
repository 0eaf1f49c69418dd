"""The main module of a fork server whose hosts run the Python code that `find_media` commands contain."""

from __future__ import annotations

import sys
from functools import partial

from cornserve.app.app import App
from cornserve.app.spec import AppSpec
from cornserve.app_host.activity import Activity
from cornserve.app_host.fork_server import run_fork_server
from cornserve.app_host.host import HostConnection, run_host
from cornserve.v1 import app_host_pb2 as pb


class CodeRunner:
    def __init__(self, app: App, spec: AppSpec, module: str, connection: HostConnection, activity: Activity) -> None:
        self._file = f"<{module}>/{spec.source_filename}"
        self._connection = connection
        self._activity = activity

    def handle(self, command: pb.HostCommand) -> None:
        reply = pb.HostReply(call=command.call, media_parts=pb.MediaParts())
        self._activity.begin(session=command.call)
        try:
            exec(compile(command.find_media.body, self._file, "exec"), {"__name__": "code"})
        except BaseException as error:
            reply.error.message = repr(error)
        self._activity.end()
        self._connection.send(reply)


if __name__ == "__main__":
    run_fork_server(int(sys.argv[1]), sys.argv[2], partial(run_host, create_sessions=CodeRunner))
