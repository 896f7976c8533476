"""Collects private reports from a web page, with the standard library: an example to start from.

    python clients/service/service.py mechanism.json reports.log --counts counts.json

serves a page at http://127.0.0.1:8000/ that draws reports with clients/javascript/mezzotint.mjs. Values never leave
the browser. Every accepted report is on disk before it is answered; the log survives crashes and restarts. On
Control-C the counts are written; then `mezzotint estimate counts.json`.

Put it behind a server that speaks HTTPS (browsers offer WebCrypto to secure pages only) and that admits each reporter
once: this example counts whatever arrives. Nothing but tables and codes is kept; requests are not logged.
"""

from __future__ import annotations

import argparse
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from mezzotint import Mechanism, collect
from mezzotint.collect.counter import MAX_BYTES
from mezzotint.core.errors import FileFormatError, MezzotintError

HERE = Path(__file__).resolve().parent
POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
)


def handler(counter: collect.Counter, mechanism_file: Path) -> type[BaseHTTPRequestHandler]:
    """What answers requests: three files, and reports by POST."""
    script, page = HERE.parent / "javascript" / "mezzotint.mjs", HERE / "page.html"
    files = {
        "/": (page, "text/html; charset=utf-8"),
        "/page.mjs": (HERE / "page.mjs", "text/javascript"),
        "/mezzotint.mjs": (script, "text/javascript"),
        "/mechanism.json": (mechanism_file, "application/json"),
    }

    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            path, kind = files.get(self.path, (None, ""))
            if path is None:
                self.answer(HTTPStatus.NOT_FOUND)
            else:
                self.answer(HTTPStatus.OK, path.read_bytes(), kind)

        def do_POST(self) -> None:
            size = self.headers.get("Content-Length", "")
            if self.path != "/report":
                return self.answer(HTTPStatus.NOT_FOUND)
            if not size.isdecimal() or int(size) > MAX_BYTES:
                return self.answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            try:
                counter.add(self.rfile.read(int(size)))
            except FileFormatError as error:
                return self.answer(HTTPStatus.BAD_REQUEST, str(error).encode())
            except MezzotintError:  # not on disk: the reporter may send the very same report again
                return self.answer(HTTPStatus.SERVICE_UNAVAILABLE)
            return self.answer(HTTPStatus.NO_CONTENT)

        def answer(
            self, status: HTTPStatus, body: bytes = b"", kind: str = "text/plain; charset=utf-8"
        ) -> None:
            self.send_response_only(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Security-Policy", POLICY)
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Addresses and times of reporters are nobody's business."""

    return Handler


def server(
    mechanism_file: Path, log: Path, *, port: int
) -> tuple[ThreadingHTTPServer, collect.Counter]:
    """A server on the loopback interface, not yet running, and its counter; port 0 takes a free one."""
    counter = collect.Counter(Mechanism.load(mechanism_file), log=log)
    return ThreadingHTTPServer(("127.0.0.1", port), handler(counter, mechanism_file)), counter


def main() -> None:
    """Serves until interrupted, then writes the counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("mechanism", type=Path)
    parser.add_argument("log", type=Path)
    parser.add_argument("--counts", type=Path, default=Path("counts.json"))
    parser.add_argument("--port", type=int, default=8000)
    chosen = parser.parse_args()
    serving, counter = server(chosen.mechanism, chosen.log, port=chosen.port)
    print(f"http://127.0.0.1:{serving.server_port}/", flush=True)
    with serving, suppress(KeyboardInterrupt):
        serving.serve_forever()
    collect.save_counts(counter.counts(), chosen.counts, overwrite=True)
    print(f"{counter.counts().n} reports counted in {chosen.counts}")


if __name__ == "__main__":
    main()
