"""A headless Chromium for tests of pages; tests that ask for it are skipped, with a reason, where there is none."""

from __future__ import annotations

import importlib.util
import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DRIVERS = ("chromedriver", "chromium-driver", "chromium.chromedriver")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
)


@contextmanager
def chromium() -> Iterator[Any]:
    """A driver whose logs hold the page's console and its requests."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    service = pytest.importorskip(
        "selenium.webdriver.chrome.service", reason="selenium is not installed"
    )
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = next(filter(None, map(shutil.which, DRIVERS)), None)
    if browser is None or driver is None:
        pytest.skip("there is no Chromium with its driver on this machine")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    session = webdriver.Chrome(options=options, service=service.Service(driver))
    try:
        yield session
    finally:
        session.quit()


def resize(session: Any, width: int) -> None:
    """A viewport of this width, narrower than Chromium's windows can be."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    session.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def requests(session: Any) -> list[str]:
    """Addresses that the page asked for since the last call; data and blob addresses stay inside the page."""
    entries = [json.loads(entry["message"])["message"] for entry in session.get_log("performance")]
    sent = [
        entry["params"]["request"]["url"]
        for entry in entries
        if entry["method"] == "Network.requestWillBeSent"
    ]
    return [url for url in sent if not url.startswith(("data:", "blob:"))]


def console(session: Any) -> list[str]:
    """Warnings and errors of the console since the last call."""
    return [
        entry["message"]
        for entry in session.get_log("browser")
        if entry["level"] in ("WARNING", "SEVERE")
    ]


def colours(session: Any, scheme: str) -> None:
    """The colour scheme, "light" or "dark", that the reader prefers."""
    wish = [{"name": "prefers-color-scheme", "value": scheme}]
    session.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": wish})


def violations(session: Any) -> list[str]:
    """What axe-core finds wrong with the accessibility of the page."""
    package = importlib.util.find_spec("axe_playwright_python")
    if package is None or package.origin is None:
        pytest.skip("axe-playwright-python, which brings axe-core, is not installed")
    script = Path(package.origin).with_name("axe.min.js")
    session.execute_script(script.read_text(encoding="utf-8"))
    session.set_script_timeout(60)
    found = session.execute_async_script(
        "axe.run(document, {resultTypes: ['violations']}).then(found => arguments[0](found.violations))"
    )
    return [f"{one['id']}: {one['nodes'][0]['html'][:200]} ({len(one['nodes'])})" for one in found]


def until(condition: Callable[[], Any], *, seconds: float = 60.0) -> Any:
    """Waits for a true value and returns it; fails after a while."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "the page did not get there in time"
        time.sleep(0.01)
    return value
