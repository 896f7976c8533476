"""Screenshots of pages at three widths in two colour schemes, to be looked at before a release.

`python tools/screenshots.py site shots index.html proofs/tables/index.html` photographs pages of a built folder, of the
site or of reports; a page may be given as `index.html#part`, and `explorer` is the explorer, which is started for it.
Without pages it takes one of each section of the site, and the explorer: `make shots`.
It also names code that is cut, pages wider than their window, requests that leave the folder, and what axe-core finds
wrong with the accessibility: exit status 1.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from browser import chromium, colours, requests, resize, until, violations

WIDTHS = (390, 768, 1280)
SCHEMES = ("light", "dark")
MOST_HEIGHT = 5000
EXPLORER = "explorer"
PAGES = (
    "index.html",
    *(
        f"{name}/index.html"
        for name in (
            "data-engineer",
            "collect",
            "notebooks",
            "accounting",
            "proofs/tables",
            "gallery",
        )
    ),
    "api/design/index.html",
    EXPLORER,
)
"""The first page, one or two of each section, and the explorer."""
CUT = "return [...document.querySelectorAll('pre > code')].filter(e => e.scrollWidth > e.clientWidth + 1).length"
DRAWN = """return document.readyState === 'complete'
  && (!document.querySelector('.figure') || document.body.dataset.ready === 'yes')
  && (!document.querySelector('marimo-wasm, #root') || document.querySelectorAll('.figure > svg').length === 3)"""
"""The explorer draws its three figures after it is loaded."""
WIDER = "return document.documentElement.scrollWidth > window.innerWidth + 1"


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """The folder on a free port of this machine; its address, which ends without a slash."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@contextmanager
def explore() -> Iterator[str]:
    """The explorer on a free port of this machine; its address, token included."""
    program = "from mezzotint.cli import main; main()"
    command = [sys.executable, "-c", program, "explore", "--no-browser", "--json"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert server.stdout is not None
        yield json.loads(server.stdout.readline())["url"]
    finally:
        os.killpg(server.pid, signal.SIGINT)
        server.communicate()


def photograph(session: Any, address: str, path: Path, *, width: int, scheme: str) -> list[str]:
    """One page as PNG; what is wrong with it."""
    session.get("about:blank")  # the page before must not store the scheme that it had
    colours(session, scheme)
    resize(session, width)
    own = address.split("/", 3)[:3]
    session.execute_cdp_cmd(
        "Storage.clearDataForOrigin", {"origin": "/".join(own), "storageTypes": "all"}
    )
    session.get(address)
    until(lambda: session.execute_script(DRAWN))
    found = []
    if session.execute_script(CUT):
        found.append("code is cut")
    if session.execute_script(WIDER):
        found.append("the page is wider than the window")
    found += [f"asks for {url}" for url in requests(session) if url.split("/", 3)[:3] != own]
    found += violations(session)
    height = min(
        int(session.execute_script("return document.documentElement.scrollHeight")), MOST_HEIGHT
    )
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    session.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    session.save_screenshot(str(path))
    return found


def main() -> int:
    """Photographs; 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("pages", nargs="*", default=PAGES)
    parser.add_argument("--widths", type=int, nargs="+", default=WIDTHS)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    wrong = 0
    with ExitStack() as stack:
        site, session = stack.enter_context(serve(given.folder)), stack.enter_context(chromium())
        addresses = {page: f"{site}/{page}" for page in given.pages}
        if EXPLORER in addresses:
            addresses[EXPLORER] = stack.enter_context(explore())
        for (page, address), width, scheme in itertools.product(
            addresses.items(), given.widths, SCHEMES
        ):
            name = re.sub(r"\W+", "-", page.removesuffix("index.html").strip("/")) or "home"
            shot = given.out / f"{name}-{width}-{scheme}.png"
            for fault in photograph(session, address, shot, width=width, scheme=scheme):
                print(f"{page} at {width} px, {scheme}: {fault}")
                wrong += 1
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
