"""Sends a request to the gateway as a client does: `helm test` runs it in a pod."""

import json
import os
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path


def main() -> int:
    key = next(line for line in Path(os.environ["API_KEYS"]).read_text().splitlines() if line and line[0] != "#")
    url, model = os.environ["GATEWAY_URL"], os.environ.get("MODEL")
    headers = {"Authorization": f"Bearer {key.strip()}", "Content-Type": "application/json"}
    print(f"GET {url}/v1/models:", _send(urllib.request.Request(f"{url}/v1/models", headers=headers)))
    if model:
        body = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}
        chat = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), headers)
        print(f"POST {url}/v1/chat/completions:", _send(chat))
    return 0


def _send(request: urllib.request.Request) -> str:
    """Repeats the request for a minute if a gateway responds that it is still loading the app."""
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(request, timeout=300) as response:
                return str(response.read().decode())
        except urllib.error.HTTPError as error:
            print(f"{request.get_method()} {request.full_url}: {error}: {error.read().decode()}")
            if error.code != 503 or time.monotonic() > deadline:
                raise
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main())
