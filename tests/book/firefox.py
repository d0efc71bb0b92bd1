"""Firefox as it comes, which Playwright cannot drive: a page of ours looks for itself and tells a server what it saw."""

from __future__ import annotations

import http.server
import json
import queue
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

from conftest import missing

PATIENCE = 300  # seconds
QUIET = ("browser.shell.checkDefaultBrowser", "datareporting.policy.dataSubmissionEnabled", "app.update.enabled")
TELL = """<!doctype html><meta charset="utf-8"><script>
const tell = what => fetch("/", {method: "POST", body: JSON.stringify(what)});
addEventListener("error", event => tell({error: event.message}));
addEventListener("unhandledrejection", event => tell({error: `${event.reason}`}));
</script>"""


def told_by_firefox(folder: Path, page: str, profile: Path, name: str = "told.html") -> Any:
    """Open ``page`` as one of ``folder``'s by this name, with a fresh profile; returns what its script hands to ``tell``, once.

    What it does not catch comes back as {"error": ...}.
    """
    firefox = shutil.which("firefox-esr") or shutil.which("firefox")
    if not firefox:
        missing("no Firefox found")
    told: queue.Queue[Any] = queue.Queue()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(folder))

        def do_GET(self) -> None:
            if self.path != f"/{name}":
                return super().do_GET()
            self.answer(200, (TELL + page).encode())

        def do_POST(self) -> None:
            told.put(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.answer(204, b"")

        def answer(self, code: int, body: bytes) -> None:
            self.send_response(code)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            """Say nothing."""

    profile.mkdir()
    (profile / "user.js").write_text("".join(f'user_pref("{name}", false);\n' for name in QUIET), "utf-8")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}/{name}"
        command = [firefox, "--headless", "--no-remote", "--profile", str(profile), address]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            return told.get(timeout=PATIENCE)
        finally:
            process.terminate()
            process.wait(timeout=60)
            server.shutdown()
