"""Screenshots of pages at three widths in two colour schemes, to be looked at before a release.

`python tools/screenshots.py site shots index.html proofs/tables/index.html` photographs pages of a built folder; a page
may be given as `index.html#part`. It also names code that is cut, and requests that leave the folder: exit status 1.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import itertools
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from browser import chromium, requests, resize

WIDTHS = (390, 768, 1280)
SCHEMES = ("light", "dark")
MOST_HEIGHT = 5000
CUT = "return [...document.querySelectorAll('pre > code')].filter(e => e.scrollWidth > e.clientWidth + 1).length"
WIDER = "return document.documentElement.scrollWidth > window.innerWidth + 1"


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """The folder on a free port of this machine; its address, which ends without a slash."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def photograph(session: Any, address: str, path: Path, *, width: int, scheme: str) -> list[str]:
    """One page as PNG; what is wrong with it."""
    session.get("about:blank")  # the page before must not store the scheme that it had
    feature = [{"name": "prefers-color-scheme", "value": scheme}]
    session.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": feature})
    resize(session, width)
    own = address.split("/", 3)[:3]
    session.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": "/".join(own), "storageTypes": "all"})
    session.get(address)
    found = []
    if session.execute_script(CUT):
        found.append("code is cut")
    if session.execute_script(WIDER):
        found.append("the page is wider than the window")
    found += [f"asks for {url}" for url in requests(session) if url.split("/", 3)[:3] != own]
    height = min(int(session.execute_script("return document.documentElement.scrollHeight")), MOST_HEIGHT)
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    session.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    session.save_screenshot(str(path))
    return found


def main() -> int:
    """Photographs; 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("pages", nargs="+")
    parser.add_argument("--widths", type=int, nargs="+", default=WIDTHS)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    wrong = 0
    with serve(given.folder) as site, chromium() as session:
        for page, width, scheme in itertools.product(given.pages, given.widths, SCHEMES):
            name = re.sub(r"\W+", "-", page.removesuffix("index.html").strip("/")) or "home"
            shot = given.out / f"{name}-{width}-{scheme}.png"
            for fault in photograph(session, f"{site}/{page}", shot, width=width, scheme=scheme):
                print(f"{page} at {width} px, {scheme}: {fault}")
                wrong += 1
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
