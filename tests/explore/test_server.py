"""The explorer over HTTP and in a headless Chromium."""

from __future__ import annotations

import http.client
import json
import re
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from browser import chromium, colours, console, requests, resize, until, violations
from counting import calls
from mezzotint.cli import run

pytest.importorskip("dash", reason="the extra `explore` is not installed")

from mezzotint.report import dashboard
from mezzotint.report.dashboard import ADDRESS, LocalServer, Question, advise, claim


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    running = LocalServer(dashboard.make_app().server)
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    yield running
    running.stop()
    thread.join(timeout=10)


def _get(server: LocalServer, path: str, **headers: str) -> tuple[int, dict[str, str]]:
    connection = http.client.HTTPConnection(ADDRESS, server.port, timeout=30)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}


@pytest.mark.parametrize(
    "path", ["/", "/?token=", "/?token=guess", "/_dash-layout", "/_dash-dependencies", "/none"]
)
def test_without_the_token_everything_is_refused(server: LocalServer, path: str) -> None:
    assert _get(server, path)[0] == 403
    assert _get(server, path, Cookie=f"mezzotint-{server.port}=guess")[0] == 403


def test_the_token_opens_once_and_becomes_a_strict_cookie(server: LocalServer) -> None:
    status, headers = _get(server, f"/?token={server.token}")
    assert status == 302
    assert headers["location"] == "/"
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    status, headers = _get(server, "/", Cookie=cookie.split(";")[0])
    assert status == 200
    assert "default-src 'self'" in headers["content-security-policy"]
    assert headers["cache-control"] == "no-store"


def test_another_name_for_this_machine_is_refused_even_with_the_token(server: LocalServer) -> None:
    # A foreign page can point its own name at 127.0.0.1; its requests carry that name.
    assert _get(server, f"/?token={server.token}", Host=f"evil.example:{server.port}")[0] == 403


def test_tokens_are_long_and_differ(server: LocalServer) -> None:
    other = LocalServer(dashboard.make_app().server)
    other._server.server_close()
    assert len(server.token) >= 40
    assert server.token != other.token


def test_stopping_waits_for_answers_under_way() -> None:
    application = dashboard.make_app().server
    entered, leave, left = threading.Event(), threading.Event(), threading.Event()

    def slow() -> str:
        entered.set()
        assert leave.wait(10)
        left.set()
        return "late"

    application.add_url_rule("/slow", view_func=slow)
    running = LocalServer(application)
    threading.Thread(target=running.run, daemon=True).start()
    cookie = _get(running, f"/?token={running.token}")[1]["set-cookie"].split(";")[0]
    threading.Thread(
        target=_get, args=(running, "/slow"), kwargs={"Cookie": cookie}, daemon=True
    ).start()
    assert entered.wait(10)
    stopped = threading.Thread(target=running.stop)
    stopped.start()
    stopped.join(timeout=1)
    assert stopped.is_alive()
    leave.set()
    stopped.join(timeout=10)
    assert not stopped.is_alive()
    assert left.is_set()


def test_only_the_loopback_address_answers(server: LocalServer) -> None:
    assert server._server.server_address[0] == ADDRESS
    # All of 127/8 is this machine; only the one address that was bound answers.
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", server.port), timeout=5)


def _values(**changes: Any) -> list[Any]:
    asked = Question()
    return [changes.get(name, getattr(asked, name)) for name in dashboard.FIELDS]


@pytest.mark.parametrize("bits", [1, 2, 3, 4])
def test_an_answer_is_one_design_and_no_search(bits: int) -> None:
    answers = []
    dashboard.answer(*_values(bits=bits))  # the first one loads libraries
    counted = calls(lambda: answers.append(dashboard.answer(*_values(bits=bits, epsilon=1.01))))
    assert answers[0][0] == ""
    assert counted < 250_000  # at most 98,289; a search for the best levels makes 444,153 and more


def test_a_prior_may_be_typed_and_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "public.csv"
    file.write_text("x\n" + "0.9\n" * 50, encoding="utf-8")
    uniform, typed = (
        dashboard.answer(*_values(epsilon=3.0, prior=prior)) for prior in ("", f" {file}:x ")
    )
    assert typed[0] == ""
    assert str(typed[1]) != str(uniform[1])
    assert f"{file}:x" in typed[3]
    assert dashboard.answer(*_values(prior=None))[3] == dashboard.answer(*_values())[3]
    assert "no such column" in dashboard.answer(*_values(prior=f"{file}:y"))[0]
    assert "FILE:COLUMN" in dashboard.answer(*_values(prior="nonsense"))[0]


def test_requests_are_not_written_down(
    server: LocalServer, capfd: pytest.CaptureFixture[str]
) -> None:
    _get(server, f"/?token={server.token}")
    said = capfd.readouterr()
    assert server.token not in said.out + said.err


def test_an_empty_field_is_named() -> None:
    assert (
        "clients=empty or out of range: enter a whole number from 1"
        in dashboard.answer(*_values(clients=None))[0]
    )
    assert "upper" in dashboard.answer(*_values(upper=-3.0))[0]
    assert "delta" in dashboard.total_claim(*_values(delta=2.0))


def test_slow_answers_run_alone_and_only_the_latest_waits() -> None:
    line, entered, leave = dashboard.Latest(), threading.Event(), threading.Event()
    done: dict[str, Any] = {}

    def slow() -> str:
        entered.set()
        assert leave.wait(10)
        return "first"

    def ask(name: str, work: Any) -> threading.Thread:
        thread = threading.Thread(target=lambda: done.update({name: line.run(work)}))
        thread.start()
        return thread

    threads = [ask("first", slow)]
    assert entered.wait(10)
    for place, name in enumerate(("second", "third"), start=1):
        threads.append(ask(name, lambda name=name: name))
        until(lambda place=place: line._newest.get("") == place, seconds=10)
    leave.set()
    for thread in threads:
        thread.join(10)
    assert done == {"first": "first", "second": None, "third": "third"}


def test_tabs_do_not_take_answers_from_each_other() -> None:
    line, entered, leave = dashboard.Latest(), threading.Event(), threading.Event()
    done: dict[str, Any] = {}

    def slow() -> str:
        entered.set()
        assert leave.wait(10)
        return "a"

    def ask(tab: str, work: Any) -> threading.Thread:
        thread = threading.Thread(target=lambda: done.update({tab: line.run(work, tab)}))
        thread.start()
        return thread

    threads = [ask("a", slow)]
    assert entered.wait(10)
    threads += [ask(tab, lambda tab=tab: tab) for tab in "bcd"]
    until(lambda: set(line._newest) == set("abcd"), seconds=10)
    leave.set()
    for thread in threads:
        thread.join(10)
    assert done == {tab: tab for tab in "abcd"}


# In a browser --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    with chromium() as driver:
        yield driver


def _text(session: Any, name: str) -> str:
    return session.execute_script(
        "return document.getElementById(arguments[0])?.textContent ?? ''", name
    )


@pytest.fixture
def opened(session: Any, server: LocalServer) -> Any:
    session.get(server.url)
    until(lambda: "privacy" in _text(session, "claim"))
    return session


@pytest.mark.parametrize("width", [1280, 400])
def test_loads_quietly_and_asks_nobody_else(session: Any, server: LocalServer, width: int) -> None:
    requests(session), console(session)
    resize(session, width)
    session.get(server.url)
    until(lambda: "privacy" in _text(session, "claim"))
    until(lambda: "ERM" in _text(session, "rivals"))
    assert console(session) == []
    hosts = {urlsplit(url).netloc for url in requests(session)}
    assert hosts == {f"{ADDRESS}:{server.port}"}
    assert session.execute_script("return document.documentElement.scrollWidth") <= width
    assert server.token not in session.current_url


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everyone_can_use_it(opened: Any, scheme: str) -> None:
    resize(opened, 1280)
    colours(opened, scheme)
    until(lambda: "ERM" in _text(opened, "rivals"))
    assert violations(opened) == []
    background = opened.execute_script("return getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(float, re.findall(r"[\d.]+", background)[:3])) / 3
    assert (brightness > 200) == (scheme == "light"), background


NAMELESS = """
const named = element => element.getAttribute('aria-label') || (element.labels && element.labels.length);
const inputs = [...document.querySelectorAll('#page input, #page [role=slider]')];
const charts = [...document.querySelectorAll('.js-plotly-plot')].map(chart => chart.closest('[role=img]'));
return [inputs.length, charts.length, [...inputs, ...charts].filter(one => !one || !named(one)).length];
"""


def test_every_input_and_every_chart_has_a_name(opened: Any) -> None:
    until(lambda: "ERM" in _text(opened, "rivals"))
    inputs, charts, nameless = opened.execute_script(NAMELESS)
    assert inputs >= len(dashboard.FIELDS)
    assert (charts, nameless) == (2, 0)
    assert len(opened.find_elements("css selector", "main")) == 1


def _type(session: Any, name: str, value: str) -> None:
    field = session.find_element("id", name)
    session.execute_script("arguments[0].select()", field)
    field.send_keys(f"{value}\n")


def test_every_tab_has_a_state_of_its_own(opened: Any, server: LocalServer) -> None:
    first = opened.current_window_handle
    opened.switch_to.new_window("tab")
    second = opened.current_window_handle
    try:
        opened.get(server.url)
        until(lambda: "privacy" in _text(opened, "claim"))
        for tab, rounds in (
            (first, 3),
            (second, 4),
        ):  # the second asks while the first one's answers are under way
            opened.switch_to.window(tab)
            _type(opened, "rounds", str(rounds))
        for tab, rounds in ((first, 3), (second, 4)):
            opened.switch_to.window(tab)
            until(lambda rounds=rounds: f"in {rounds} rounds" in _text(opened, "claim"))
            assert f"--rounds {rounds} " in _text(opened, "commands")
            until(lambda: "ERM" in _text(opened, "rivals"))
    finally:
        opened.switch_to.window(second)
        opened.close()
        opened.switch_to.window(first)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("clients", "2000000000", "need an integer >= 1, at most 1e+09"),
        ("rounds", "0", f"from 1 to {dashboard.COUNTS['rounds']:,}"),
        ("delta", "2", "between 0 and 1"),
    ],
)
def test_what_is_beyond_the_limits_is_refused_with_the_limits(
    opened: Any, name: str, value: str, said: str
) -> None:
    _type(opened, name, value)
    until(lambda: said in _text(opened, "error"))
    assert name in _text(opened, "error")
    assert _text(opened, "commands") == ""


def test_a_change_changes_the_answer_and_its_command_runs_as_printed(
    opened: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = _text(opened, "summary")
    field = opened.find_element("id", "rounds")
    field.send_keys("\ue011\ue00e")  # Home, Shift
    opened.execute_script("arguments[0].select()", field)
    field.send_keys("5\n")
    upper = opened.find_element("id", "upper")
    opened.execute_script("arguments[0].select()", upper)
    upper.send_keys("3\n")
    question = Question(rounds=5, upper=3)
    advice = advise(question)
    # The claim, and the summary with the commands, are answers of their own.
    until(lambda: str(claim(question, advice)) == _text(opened, "claim"))
    until(lambda: f"{advice.mse:,.6g}" in _text(opened, "summary"))
    assert _text(opened, "summary") != before
    make, account = [line.removeprefix("$ ") for line in _text(opened, "commands").splitlines()]
    monkeypatch.chdir(tmp_path)
    assert run([*shlex.split(make)[1:], "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    shown = _text(opened, "summary")
    assert f"{made['mse']:,.6g}" in shown
    assert f"{made['mae']:,.6g}" in shown
    assert run(shlex.split(account)[1:]) == 0
    assert re.search(r"epsilon|\(", capsys.readouterr().out)


def test_the_verb_serves_and_prints_its_address() -> None:
    program = [
        sys.executable,
        "-c",
        "from mezzotint.cli import main; main()",
        "explore",
        "--no-browser",
        "--json",
    ]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            facts = json.loads(process.stdout.readline())
            connection = http.client.HTTPConnection(ADDRESS, facts["port"], timeout=30)
            connection.request("GET", "/")
            assert connection.getresponse().status == 403
            connection.close()
        finally:
            process.terminate()
