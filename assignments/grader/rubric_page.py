"""A page on this machine for grading written answers by their rubric.

It is served on 127.0.0.1 only, at a random port. Every address begins with a secret token, so that another user of the
machine or a page of the web cannot ask for anything; the name that the browser asked for (``Host``) must be ours, and
what changes something must come from our page (``Origin``). The page loads nothing from elsewhere, and what a student
wrote gets into it as text only.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from . import batch, drafts, overrides, reports, results, rubrics
from .drafts import Answer
from .questions import Assignment
from .rubrics import Rubric
from .written import visible

FILES = Path(__file__).parent / "page"
STATIC = {
    "": ("rubric.html", "text/html; charset=utf-8"),
    "rubric.css": ("rubric.css", "text/css; charset=utf-8"),
    "rubric.js": ("rubric.js", "text/javascript; charset=utf-8"),
}
SHOWN = 50_000  # characters of an answer, which is asked for in a few hundred words
MAX_BODY = 100_000  # bytes of what the page sends
REFUSED = (403, 404, 413, 421)
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:;"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Desk:
    """All that the page shows and changes: the answers in their order, and the drafts.

    With ``anonymous`` no name gets to the page, and the order is one that no name tells.
    """

    def __init__(self, assignment: Assignment, output: Path, found: Sequence[Answer], anonymous: bool = False):
        self.assignment, self.output, self.anonymous = assignment, output, anonymous
        self.rubric: Rubric = rubrics.load(assignment)
        self.lock = threading.Lock()
        seed = str(batch.read_settings(output).get("seed", ""))
        names = [hmac.new(seed.encode(), one.student.encode("utf-8", "replace"), hashlib.sha256) for one in found]
        self.ids = {name.hexdigest()[:16]: one for name, one in zip(names, found, strict=True)}
        self.order = sorted(self.ids, key=lambda name: name if anonymous else self.ids[name].student)

    def overview(self) -> dict[str, Any]:
        written = self.assignment.written
        rows = [{"id": name, "label": self.label(name), "done": self.is_done(name)} for name in self.order]
        return {
            "title": self.assignment.title,
            "question": written.title,
            "points": written.points,
            "rubric": asdict(self.rubric),
            "answers": rows,
            "longest": drafts.LONGEST,
        }

    def label(self, name: str) -> str:
        return f"Answer {self.order.index(name) + 1}" if self.anonymous else self.ids[name].student[:200]

    def is_done(self, name: str) -> bool:
        answer = self.ids[name]
        return drafts.is_complete(drafts.load(self.output, answer), self.rubric, answer)

    def one(self, name: str) -> dict[str, Any]:
        """An answer and its draft; ``KeyError`` if there is none of this name."""
        answer = self.ids[name]
        draft = drafts.load(self.output, answer)
        decision = self.decisions().get((answer.student, self.assignment.written.name))
        in_table = None if decision is None or draft.exported == (decision.points, decision.note) else decision
        return {
            "text": visible(answer.text[:SHOWN]),
            "more": max(0, len(answer.text) - SHOWN),
            "pictures": answer.pictures,
            "answer": answer.hash,
            **{name: getattr(draft, name) for name in ("version", "points", "items", "comment")},
            "changed": draft.answer != answer.hash,
            "table": {"points": in_table.points, "note": in_table.note} if in_table else None,
        }

    def decisions(self) -> overrides.Overrides:
        students = [one.result.student for one in reports.grades(self.output, self.assignment)]
        return overrides.read(self.output, self.assignment, students)

    def save(self, said: dict[str, Any]) -> dict[str, Any]:
        """Keep what the page says about an answer; raises ``KeyError`` or ``ValueError``."""
        with self.lock:
            name = str(said.get("id"))
            answer = self.ids[name]
            if said.get("answer") != answer.hash:
                raise drafts.Outdated("answer: another one was handed in; load the page again")
            draft = drafts.changed(drafts.load(self.output, answer), self.rubric, said)
            drafts.store(self.output, draft)
            return {"version": draft.version, "done": drafts.is_complete(draft, self.rubric, answer)}

    def export(self) -> dict[str, Any]:
        """Enter what is complete into the table of decisions."""
        with self.lock:
            return asdict(drafts.export(self.output, self.assignment, self.rubric, list(self.ids.values())))

    def counted(self) -> tuple[int, int]:
        return sum(map(self.is_done, self.order)), len(self.order)


class Server(ThreadingHTTPServer):
    """The page's server; ``address`` is what to open in a browser, and a secret."""

    daemon_threads = True

    def __init__(self, desk: Desk, port: int = 0):
        super().__init__(("127.0.0.1", port), Handler)
        self.desk = desk
        self.token = secrets.token_urlsafe(24)
        self.host = f"127.0.0.1:{self.server_port}"
        self.address = f"http://{self.host}/{self.token}/"


class Handler(BaseHTTPRequestHandler):
    """One request: refused unless it knows the token and names our host."""

    server: Server
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        self.respond(self.read)

    def do_POST(self) -> None:
        self.respond(self.write)

    def respond(self, answer: Any) -> None:
        """Check who asks, and answer; every refusal says as little as it can."""
        if self.headers.get_all("Host") != [self.server.host]:
            return self.send(421, "text/plain", b"")
        _, token, *rest = [*self.path.split("/", 2), ""]
        if not hmac.compare_digest(token.encode("utf-8", "replace"), self.server.token.encode()):
            return self.send(404, "text/plain", b"")
        try:
            answer(rest[0])
        except KeyError:
            self.send(404, "text/plain", b"")
        except drafts.Outdated as error:
            self.send_data({"error": str(error)}, 409)
        except ValueError as error:
            self.send_data({"error": str(error)}, 400)
        except ConnectionError:
            self.close_connection = True  # the browser has gone
        except OSError as error:
            self.send_data({"error": f"nothing was saved: {error.strerror}"}, 500)

    def read(self, path: str) -> None:
        if path in STATIC:
            name, kind = STATIC[path]
            self.send(200, kind, (FILES / name).read_bytes())
        elif path == "overview":
            self.send_data(self.server.desk.overview())
        else:
            self.send_data(self.server.desk.one(path.removeprefix("answer/")))

    def write(self, path: str) -> None:
        """Save or export what our page asks for."""
        desk = self.server.desk
        actions: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "save": desk.save,
            "export": lambda _: desk.export(),
        }
        origin, kind = self.headers.get("Origin"), self.headers.get("Content-Type")
        length = self.headers.get("Content-Length", "")
        if origin != f"http://{self.server.host}" or kind != "application/json":
            return self.send(403, "text/plain", b"")
        if not length.isdecimal() or int(length) > MAX_BODY:
            return self.send(413, "text/plain", b"")
        try:
            said = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError) as error:
            raise ValueError("this is not JSON") from error
        if not isinstance(said, dict):
            raise ValueError("this is not a JSON object")
        self.send_data(actions[path](said))

    def send_data(self, data: dict[str, Any], code: int = 200) -> None:
        self.send(code, "application/json", json.dumps(data).encode())

    def send(self, code: int, kind: str, body: bytes) -> None:
        self.close_connection |= code in REFUSED  # what was sent is not read
        self.send_response(code)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        return "rlbook"

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing: the addresses hold the token."""


def serve(desk: Desk, port: int = 0) -> None:
    """Serve the page until an interrupt; the address is printed."""
    results.private_folder(folder := desk.output / "drafts")
    open_already = ValueError(f"output: another grading page is open for {str(desk.output)!r}")
    with results.alone(folder, open_already), Server(desk, port) as server:
        print(f"Open in a browser on this machine: {server.address}", flush=True)
        print("The address is a secret while this runs. Everything is saved as you type; Ctrl-C ends it.", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            graded, everybody = desk.counted()
            print(f"\n{graded} of {everybody} graded; the same command goes on.")
