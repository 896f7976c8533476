"""The explorer's page, made with Dash, and served to this machine alone: a random token, the loopback address."""

from __future__ import annotations

import hmac
import itertools
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, final

import dash
import flask
from dash.development.base_component import Component
from werkzeug import serving

from mezzotint.core.errors import MezzotintError, ParameterError
from mezzotint.core.records import JsonObject
from mezzotint.report import answers
from mezzotint.report.answers import Answer, Question
from mezzotint.report.mechanism_pages import compare, how_good_it_is
from mezzotint.report.page import Curve, Figure, asset, figure_json

if TYPE_CHECKING:
    import werkzeug
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

ADDRESS = "127.0.0.1"
PATIENCE = 60.0
"""Seconds that an end waits for answers under way."""

# Nothing may be loaded from, or sent to, anywhere but this server. Dash's own scripts stand in the page and plotly.js
# compiles functions.
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; frame-ancestors 'none'; form-action 'none'"
)


@final
class LocalServer:
    """A web application on the loopback address that answers only requests which know its token.

    The first request carries the token in its address and gets a cookie; all others carry the cookie. Requests that
    name another host (a foreign page that has its name pointed at this machine) are refused too.

    Arguments:
        application: a Flask application; a rule is added to it that runs before everything else.
        port: 0 for any free one.
    """

    def __init__(self, application: flask.Flask, *, port: int = 0) -> None:
        self.token = secrets.token_urlsafe(32)
        logging.getLogger("werkzeug").setLevel(logging.WARNING)  # it would write every request down, token included
        application.before_request(self._refusal)
        application.after_request(_headers)
        self._answering = 0
        self._idle = threading.Condition()
        self._server = serving.make_server(ADDRESS, port, self._counted(application), threaded=True)
        self.port = int(self._server.server_port)

    @property
    def url(self) -> str:
        """The address to open, with the token."""
        return f"http://{ADDRESS}:{self.port}/?token={self.token}"

    def run(self) -> None:
        """Serves until `stop`, or an interrupt; then waits for answers under way."""
        try:
            self._server.serve_forever()
        finally:
            self._settle()

    def stop(self) -> None:
        """Ends `run`, which may be in another thread, waits for answers under way and frees the port."""
        self._server.shutdown()
        self._settle()
        self._server.server_close()

    def _settle(self) -> None:
        # An interpreter that ends while one of its threads is inside a solver is aborted.
        with self._idle:
            self._idle.wait_for(lambda: self._answering == 0, timeout=PATIENCE)

    def _counted(self, application: flask.Flask) -> WSGIApplication:
        def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
            with self._idle:
                self._answering += 1
            try:
                return application(environ, start)
            finally:
                with self._idle:
                    self._answering -= 1
                    self._idle.notify_all()

        return answer

    def _refusal(self) -> werkzeug.Response | None:
        """None lets a request pass."""
        request, cookie = flask.request, f"mezzotint-{self.port}"
        if request.host not in (f"{ADDRESS}:{self.port}", f"localhost:{self.port}"):
            return _refused()
        if self._knows(request.args.get("token", "")):
            answer = flask.redirect("/")
            answer.set_cookie(cookie, self.token, httponly=True, samesite="Strict")
            return answer
        return None if self._knows(request.cookies.get(cookie, "")) else _refused()

    def _knows(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())


def _refused() -> flask.Response:
    text = "403: this page opens only with the address that mezzotint explore printed, token included.\n"
    return flask.Response(text, status=403, mimetype="text/plain")


def _headers(answer: flask.Response) -> flask.Response:
    answer.headers["Content-Security-Policy"] = POLICY
    answer.headers["Referrer-Policy"] = "no-referrer"
    answer.headers["X-Content-Type-Options"] = "nosniff"
    answer.headers["Cache-Control"] = "no-store"
    return answer


TEMPLATE = (
    '<!doctype html><html lang="en"><head>{%metas%}<title>{%title%}</title><link rel="icon" href="data:,">'
    "{%css%}<style>" + asset("dashboard.css") + "</style></head><body>{%app_entry%}<footer>{%config%}{%scripts%}"
    "{%renderer%}</footer><script>" + asset("dashboard.js") + "</script></body></html>"
)

FIELDS = tuple(field.name for field in fields(Question))
_LIMITS = {**dict.fromkeys(answers.COUNTS, "; a whole number from 1 on"), "delta": "; a number between 0 and 1"}


def make_app(*, prior: str = "") -> dash.Dash:
    """The Dash application.

    Arguments:
        prior: FILE:COLUMN that the page begins with as a prior; "" for uniform inputs.
    """
    app = dash.Dash(
        "mezzotint",
        title="mezzotint: which mechanism?",
        update_title=None,  # pyright: ignore[reportArgumentType] documented: the title stays
        serve_locally=True,
        include_assets_files=False,
        index_string=TEMPLATE,
        meta_tags=[{"name": "viewport", "content": "width=device-width, initial-scale=1"}],
    )
    app.layout = lambda: _layout(prior)  # made for each tab that opens the page
    answer(*(getattr(Question(), name) for name in FIELDS))  # loads the solvers before anybody waits for them
    inputs = [dash.Input(name, "value") for name in FIELDS]
    answers = ("error", "summary", "reasons", "commands", "python", "distribution", "took")
    properties = ("children",) * 5 + ("figure", "children")
    outputs = [dash.Output(name, what) for name, what in zip(answers, properties, strict=True)]
    app.callback(*outputs, *inputs)(answer)
    tab = dash.State("tab", "data")
    app.callback(dash.Output("claim", "children"), *inputs, tab)(total_claim)
    app.callback(dash.Output("rivals", "figure"), dash.Output("limit", "children"), *inputs, tab)(rivals)
    return app


# The page ----------------------------------------------------------------------------------------------------


def _control(label: str, inner: Component) -> Component:
    named: JsonObject = {"htmlFor": vars(inner)["id"]} if isinstance(inner, dash.dcc.Input) else {}
    return dash.html.Div([dash.html.Label(label, **named), inner], className="control")


def _number(name: str, value: float, label: str, **limits: Any) -> Component:
    step = 1 if name in answers.COUNTS else "any"
    return _control(
        label, dash.dcc.Input(id=name, type="number", value=value, step=step, debounce=True, required=True, **limits)
    )


def _choice(name: str, value: str, label: str, options: dict[str, str]) -> Component:
    return _control(label, dash.dcc.RadioItems(id=name, value=value, options=options))


def _controls(prior: str) -> list[Component]:
    asked, slider = Question(), dash.dcc.Slider
    marks = {mark: str(mark) for mark in (0.1, 1, 2, 4, 6, 8)}
    epsilon = slider(id="epsilon", min=0.1, max=8, step=0.1, value=asked.epsilon, marks=marks)
    return [
        _control("epsilon of one report", epsilon),
        _control("bits of one report", slider(id="bits", min=1, max=answers.MOST_BITS, step=1, value=asked.bits)),
        dash.html.Div([_number("lower", -1, "lower"), _number("upper", 1, "upper")], className="pair"),
        _choice("loss", asked.loss, "make small", {"mse": "mean squared error", "mae": "mean absolute error"}),
        _control(
            "inputs are like FILE:COLUMN (public data only); empty: uniform",
            dash.dcc.Input(id="prior", type="text", value=prior, debounce=True, placeholder="uniform on the range"),
        ),
        _number("clients", asked.clients, "clients per round", min=1),
        dash.html.Div(
            [_number("coordinates", 1, "coordinates", min=1), _number("rounds", 1, "rounds", min=1)], className="pair"
        ),
        _choice("view", asked.view, "who sees what", {"local": "every report is seen", "sum": "only secure sums are"}),
        _number("delta", asked.delta, "delta of the total claim", min=0, max=1),
    ]


def _layout(prior: str) -> Component:
    html, dcc = dash.html, dash.dcc
    shown = {"config": {"displayModeBar": False}, "responsive": True, "style": {"height": "360px"}}
    return html.Div(
        id="page",
        children=[
            dcc.Store(id="tab", data=secrets.token_hex(8)),
            html.Header([html.H1("Which mechanism should I use?"), html.P(id="error")]),
            html.Aside(_controls(prior)),
            html.Main(
                [
                    html.H2("The answer"),
                    html.Div(id="summary"),
                    html.Ul(id="reasons"),
                    html.H2("What the whole release costs"),
                    dcc.Loading(html.P(id="claim"), type="dot"),
                    _chart("Distribution of the report", dcc.Graph(id="distribution", **shown)),
                    html.H2("Make it"),
                    html.Pre(id="commands"),
                    html.Pre(id="python"),
                    html.H2("Against its rivals"),
                    html.P(id="limit"),
                    dcc.Loading(_chart("Error of all rivals", dcc.Graph(id="rivals", **shown)), type="dot"),
                    html.P(id="took", className="note"),
                ]
            ),
        ],
    )


def _chart(name: str, inner: Component) -> Component:
    """A figure under a name for those who do not see it."""
    label: JsonObject = {"aria-label": name}
    return dash.html.Div(inner, role="img", **label)


# The answers -------------------------------------------------------------------------------------------------


Control: TypeAlias = float | str | None
"""What a control of the page holds."""


def question_of(*values: Control) -> Question:
    """The question that the controls ask; an empty or unreadable control raises ParameterError."""
    asked: JsonObject = dict(zip(FIELDS, values, strict=True))
    asked["prior"] = (asked["prior"] or "").strip()
    for name, value in asked.items():
        if value is None:
            raise ParameterError(name, "nothing that is allowed", f"fill in this field{_LIMITS.get(name, '')}")
        if name in answers.COUNTS and isinstance(value, float) and value.is_integer():
            asked[name] = int(value)
    return Question(**asked)


def answer(*values: Control) -> tuple[object, ...]:
    """Everything that is there at once."""
    started = time.perf_counter()
    html = dash.html
    try:
        question = question_of(*values)
        advice = answers.advise(question)
    except MezzotintError as error:
        return (str(error), [], [], "", "", _empty(), "")
    rows = [html.Tr([html.Td(name), html.Td(value)]) for name, value in answers.summary(question, advice)]
    commands = "\n".join(f"$ {line}" for line in answers.commands(question, advice))
    python = answers.python_lines(question, advice)
    took = f"Designed in {1000 * (time.perf_counter() - started):.0f} ms on this machine; nothing left it."
    reasons = [html.Li(reason) for reason in advice.reasons]
    return ("", html.Table(html.Tbody(rows)), reasons, commands, python, _distribution(question, advice), took)


T = TypeVar("T")


@final
class Latest:
    """Runs slow answers one at a time; of a tab's that wait, only the latest is computed, as its page moved on."""

    def __init__(self) -> None:
        self._running = threading.Lock()
        self._tickets = itertools.count()
        self._newest: dict[str, int] = {}

    def run(self, work: Callable[[], T], tab: str = "") -> T | None:
        """The result of `work`, or None when a later call of the same tab came while this one waited."""
        ticket = next(self._tickets)
        self._newest[tab] = max(self._newest.get(tab, -1), ticket)
        with self._running:
            if ticket != self._newest[tab]:
                return None
            if len(self._newest) > _MOST_TABS:  # tabs that were closed are never heard of again
                self._newest = {tab: ticket}
            return work()


_MOST_TABS = 1000
_CLAIMS, _RIVALS = Latest(), Latest()


def total_claim(*values: Control) -> object:
    """The claim of the whole release, for the controls' values and the tab; many reports may take seconds."""
    try:
        question, tab = _asked(values)
        claim = _CLAIMS.run(lambda: answers.claim(question, answers.advise(question)), tab)
    except MezzotintError as error:
        return str(error)
    return dash.no_update if claim is None else str(claim)


def _asked(values: Sequence[Control]) -> tuple[Question, str]:
    """The question, and the tab that asks it."""
    return question_of(*values[: len(FIELDS)]), "".join(map(str, values[len(FIELDS) :]))


def rivals(*values: Control) -> tuple[object, object]:
    """The comparison at equal epsilon, which takes seconds; for uniform inputs. Arguments as of `total_claim`."""
    try:
        question, tab = _asked(values)
        mechanism = answers.advise(question).mechanism
        comparison = _RIVALS.run(lambda: _compared(mechanism), tab)
    except MezzotintError:
        return _empty(), ""
    if comparison is None:
        return dash.no_update, dash.no_update
    section = how_good_it_is(mechanism, comparison)
    figure = figure_json(section.figures[0]) if section.figures else _empty()
    return figure, " ".join(section.words)


_compared = lru_cache(maxsize=64)(compare)


def _empty() -> JsonObject:
    return {"data": [], "layout": {"height": 10, "xaxis": {"visible": False}, "yaxis": {"visible": False}}}


def _distribution(question: Question, advice: Answer) -> JsonObject:
    """Probabilities of the levels at both ends and the middle of the range."""
    mechanism = advice.mechanism
    inputs = (question.lower, (question.lower + question.upper) / 2, question.upper)
    bars = [Curve.of(f"input {x:.4g}", advice.levels, mechanism.pmf(x).tolist(), "bars") for x in inputs]
    axes = ("decoded report (data units)", "probability")
    return figure_json(Figure.of("distribution", "Distribution of the report", axes, *bars))
