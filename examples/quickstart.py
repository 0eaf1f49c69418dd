"""Serves a small language model on this machine and asks it a question. `make run` runs this.

python examples/quickstart.py               serves until Ctrl-C
ONCE=1 python examples/quickstart.py        stops after the response
python examples/quickstart.py --port 8001   accepts the options of `cornserve up`
"""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from cornserve import Client
from cornserve.client import ClientError
from cornserve.home import Home

NAME = "smollm2"
QUESTION = "What is the capital of France?"

console = Console(highlight=False, soft_wrap=True)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    model = Home.default().models / NAME
    try:
        provision(model)
        serve(model)
    except KeyboardInterrupt:
        console.print("Stopped.")


def provision(model: Path) -> None:
    """Creates the model directory in a separate process, so that its memory is free for serving."""
    if not model.is_dir():
        console.print("[bold]Creating the model directory[/bold] (only once)")
        script = Path(__file__).with_name("smollm2.py")
        if subprocess.run([sys.executable, script, model], start_new_session=True, check=False).returncode != 0:
            raise SystemExit("The model directory could not be created.")


def serve(model: Path) -> None:
    """Runs `cornserve up`, deploys the app and asks it a question."""
    console.print("[bold]Starting Cornserve[/bold]  [dim]cornserve up[/dim]")
    command = [sys.executable, "-m", "cornserve.cli", "up", "--json", *sys.argv[1:]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as up:
        try:
            assert up.stdout is not None
            ready = up.stdout.readline()
            if not ready:
                raise SystemExit(up.wait())  # `cornserve up` has printed the error.
            url = json.loads(ready)["url"]
            with Client(url) as client:
                deploy(client, model)
                chat(client)
            if os.environ.get("ONCE"):
                return
            print_next_steps(url)
            up.wait()
        except ClientError as error:
            raise SystemExit(f"error: {error}") from error
        finally:
            while up.poll() is None:
                # The first signal requests a stop. Further signals (after another Ctrl-C) skip the drain.
                up.terminate()
                with suppress(KeyboardInterrupt):
                    up.wait()


def deploy(client: Client, model: Path) -> None:
    console.print(f"[bold]Deploying {NAME}[/bold]  [dim]cornserve deploy {model}[/dim]")
    started = time.monotonic()
    with console.status("waiting") as status:

        def show(step: str) -> None:
            status.update(step)
            console.print(f"  [dim]{time.monotonic() - started:5.1f} s  {step}[/dim]")

        client.deploy(model, name=NAME, on_progress=show)
    console.print(f"  [green]serving[/green] after {time.monotonic() - started:.0f} s")


def chat(client: Client) -> None:
    console.print(f"[bold]Asking[/bold] {QUESTION}  [dim]cornserve chat {NAME} '{QUESTION}'[/dim]")
    messages = [{"role": "user", "content": QUESTION}]
    response = ""
    for chunk in client.chat(NAME, messages, temperature=0, max_tokens=50):
        console.print(chunk, end="", style="green", markup=False)
        response += chunk
    console.print()
    if not response.strip():
        raise SystemExit("The response is empty.")


def print_next_steps(url: str) -> None:
    python = f"""\
from openai import OpenAI
client = OpenAI(base_url="{url}/v1", api_key="none")
messages = [{{"role": "user", "content": "Why is the sky blue?"}}]
print(client.chat.completions.create(model="{NAME}", messages=messages).choices[0].message.content)"""
    curl = f"""\
curl {url}/v1/chat/completions -H 'Content-Type: application/json' \\
  -d '{{"model": "{NAME}", "messages": [{{"role": "user", "content": "Why is the sky blue?"}}]}}'"""
    cli = str(Path(sys.executable).with_name("cornserve"))
    console.print(f"\nCornserve listens on [bold]{url}[/bold]. Try, in another terminal:")
    for title, code in [
        ("A conversation", f"{cli} chat {NAME}"),
        ("Status", f"{cli} status {NAME}"),
        ("curl", curl),
        ("Python, with the official openai client", python),
        ("An app with several calls, in plain Python", f"{cli} deploy examples/fan_out.py"),
    ]:
        console.print(f"\n[dim]# {title}[/dim]")
        console.print(code, style="cyan", markup=False)
    console.print("\n[bold]Ctrl-C[/bold] stops everything.")


if __name__ == "__main__":
    main()
