"""`mezzotint explore`."""

from __future__ import annotations

import importlib.util
import sys
from typing import Annotated

from mezzotint.cli import common
from mezzotint.cli.common import AsJson, option
from mezzotint.core.errors import ParameterError

EXAMPLE = "mezzotint explore --no-browser"


def command(
    port: Annotated[int, option("Port on the loopback address; 0 picks a free port.")] = 0,
    no_browser: Annotated[bool, option("Only print the address.", "--no-browser")] = False,
    prior: Annotated[
        str | None, option("Public column distributed like the inputs, preselected on the page.", metavar="FILE:COLUMN")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Open a local page that helps you choose a mechanism and explains why; only this machine can reach it.

    The printed address contains a random token, and requests without it are refused. Press Ctrl-C to stop.
    """
    if importlib.util.find_spec("dash") is None:
        raise ParameterError("explore", "no Dash", "the page needs an extra: pip install 'mezzotint[explore]'")
    if not 0 <= port < 2**16:
        raise ParameterError("port", port, "use 0 (any free port) or 1024 to 65535")
    if prior is not None:
        common.warn(common.PRIOR_WARNING)
    from mezzotint.report import dashboard

    page = dashboard.LocalServer(dashboard.make_app(prior=prior or "").server, port=port)
    text = f"Serving on this machine only; open {page.url}\nPress Ctrl-C to stop."
    common.show({"url": page.url, "port": page.port}, as_json, lambda: text)
    sys.stdout.flush()
    if not no_browser:
        import webbrowser

        webbrowser.open(page.url)
    page.run()
