"""Sends a request to the gateway as a client does: `helm test` runs it in a pod."""

import json
import os
import sys
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
    with urllib.request.urlopen(request, timeout=300) as response:
        return str(response.read().decode())


if __name__ == "__main__":
    sys.exit(main())
