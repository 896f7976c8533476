"""The explorer: which mechanism should I use? A question in numbers, an answer with reasons and the lines that make it.

Its page is made with Dash, and served to this machine alone: a random token, the loopback address.
"""

from __future__ import annotations

import hmac
import itertools
import logging
import math
import secrets
import shlex
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, final

import dash
import flask
from dash.development.base_component import Component
from werkzeug import serving

import mezzotint as mz
from mezzotint.core.arguments import check_choice, check_count, check_finite, check_probability
from mezzotint.core.errors import MezzotintError, ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.priors import Prior, as_prior
from mezzotint.core.records import JsonObject, above, number
from mezzotint.report.mechanism_pages import NORMAL, compare, how_good_it_is
from mezzotint.report.page import Curve, Figure, asset, figure_json

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import werkzeug
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

    from mezzotint.privacy.claim import Trust

MOST_BITS = 6
COUNTS = {"bits": MOST_BITS, "clients": 10**9, "coordinates": 10**7, "rounds": 10**5}
"""Whole numbers of a question, and the most that each may be."""

_REACHES = (1.0, 1.005, 1.02, 1.06, 1.13, 1.3)
"""How far out even grids are tried, as multiples of the least that unbiased reports need."""

_INNER = ((1.15, 0.06), (1.15, 0.18), (1.08, 0.3))
"""Where reports need not add up: reach of four levels, the inner ones at these shares of the outer. Near the searched
optimum at epsilon 1 to 3, where even grids are worst."""

KNOTS = {"local": 33, "sum": 9}
"""Evenly spaced inputs at which the table has a row. Finding the best inputs would gain some tenths of a percent and
take ten times as long; sums are accounted over pairs of rows, so that fewer rows answer sooner."""

_MARGIN = 1e-6


@final
@dataclass(frozen=True, kw_only=True)
class Question:
    """A user's question.

    Arguments:
        epsilon, bits: of one report, 0.05 to 15 and 1 to 6; lower, upper: range of the inputs, data units.
        prior: FILE:COLUMN of public data that inputs are like, or "" for uniform.
        clients: reports per round; coordinates: values per client and round.
        view: "local", every report is seen; "sum", only secure sums are.
        delta: of the total claim.
    """

    epsilon: float = 1.0
    bits: int = 2
    lower: float = -1.0
    upper: float = 1.0
    loss: Literal["mse", "mae"] = "mse"
    prior: str = ""
    clients: int = 10_000
    coordinates: int = 1
    rounds: int = 1
    view: Literal["local", "sum"] = "local"
    delta: float = 1e-6

    def __post_init__(self) -> None:
        for name in ("epsilon", "lower", "upper"):
            check_finite(name, getattr(self, name))
        if not 0.05 <= self.epsilon <= 15:
            raise ParameterError("epsilon", self.epsilon, "use 0.05 to 15 per report")
        if not self.lower < self.upper:
            raise ParameterError("upper", self.upper, f"must be above lower={self.lower:g}")
        check_probability("delta", self.delta)
        for name, most in COUNTS.items():
            check_count(name, getattr(self, name), most=most)
        check_choice("loss", self.loss, ("mse", "mae"))
        check_choice("view", self.view, ("local", "sum"))


@final
@dataclass(frozen=True, kw_only=True)
class Answer:
    """The suggested mechanism, whose certified epsilon is at most the question's.

    Arguments:
        family, levels: the options of `mezzotint design` that make it.
        mse, mae: under the question's prior, squared data units and data units.
        one_bit: the question's loss of one-bit randomized response at the same epsilon.
        bytes_per_client: packed reports of one client in all rounds, rounded up per round.
        half_width: of the 95 % interval for the mean of one coordinate in one round: the part that privacy adds.
    """

    mechanism: Mechanism
    family: str
    levels: tuple[float, ...]
    mse: float
    mae: float
    one_bit: float
    bytes_per_client: int
    half_width: float
    reasons: tuple[str, ...]


@lru_cache(maxsize=8)
def _values(prior: str) -> npt.NDArray[np.floating]:
    """The column, read once for all ranges."""
    path, _, column = prior.rpartition(":")
    if not path or not column:
        raise ParameterError("prior", prior, "give FILE:COLUMN, as in public.parquet:age")
    return mz.collect.read_values(path, column=column)


@lru_cache(maxsize=32)
def _sample(prior: str, lower: float, upper: float) -> Prior | None:
    """Sorted and counted once: an answer then takes as long as the column has different values."""
    return as_prior(_values(prior), lower=lower, upper=upper) if prior else None


@lru_cache(maxsize=512)
def _candidates(asked: Question) -> tuple[tuple[str, Mechanism], ...]:
    """Tables to choose from, each made in milliseconds: one-bit response, and best tables on even grids of levels."""
    epsilon, lower, upper, count, knots = (
        asked.epsilon,
        asked.lower,
        asked.upper,
        2**asked.bits,
        KNOTS[asked.view],
    )
    problem: dict[str, Any] = {
        "epsilon": epsilon,
        "lower": lower,
        "upper": upper,
        "loss": asked.loss,
    }
    problem["prior"] = _sample(asked.prior, lower, upper)
    found = [
        (
            "randomized_response",
            mz.design.calibrate("randomized_response", levels=2, **problem).mechanism,
        )
    ]
    grids = [even_levels(epsilon, count, lower, upper, reach) for reach in _REACHES if count > 2]
    if count == 4 and knots == KNOTS["local"]:
        grids += [four_levels(epsilon, lower, upper, reach, share) for reach, share in _INNER]
    for levels in grids:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found.append(
                    ("optimal", mz.design.optimal(levels=levels, knots=knots, **problem).mechanism)
                )
        except MezzotintError:
            continue
    return tuple(found)


def even_levels(
    epsilon: float, count: int, lower: float, upper: float, reach: float
) -> list[float]:
    """An even grid around the middle of the range, `reach` times as far out as unbiased reports need, easy to type."""
    half = (upper - lower) / 2 / math.tanh(epsilon / 2) * reach * (1 + _MARGIN)
    # Six digits, rounded outwards: the margin is wider than their grain.
    step = float(f"{2 * half / (count - 1) * (1 + _MARGIN):.7g}")
    middle = lower + (upper - lower) / 2
    return [float(f"{middle + step * (k - (count - 1) / 2):.14g}") for k in range(count)]


def four_levels(
    epsilon: float, lower: float, upper: float, reach: float, share: float
) -> list[float]:
    """Outer levels `reach` times as far out as unbiased reports need, inner ones at a share of that; easy to type."""
    half = (upper - lower) / 2 / math.tanh(epsilon / 2) * reach
    middle = lower + (upper - lower) / 2
    return [float(f"{middle + half * place:.9g}") for place in (-1.0, -share, share, 1.0)]


def advise(question: Question) -> Answer:
    """The best mechanism found for a question, in a fraction of a second for up to 16 levels.

    Where sums of reports must decode to sums of values, levels lie on an even grid. The table is optimal on its levels.
    `mezzotint design --levels N` also searches levels and knots: that takes seconds and gains a few percent.
    """
    # Tables depend on nothing else: another number of clients or rounds needs no new ones.
    candidates = _candidates(replace(question, clients=1, coordinates=1, rounds=1, delta=0.5))
    sample = _sample(question.prior, question.lower, question.upper)

    def loss(mechanism: Mechanism) -> float:
        return mechanism.mse(sample) if question.loss == "mse" else mechanism.mae(sample)

    family, mechanism = min(candidates, key=lambda one: loss(one[1]))
    one_bit = loss(candidates[0][1])
    mse = mechanism.mse(sample)
    per_round = math.ceil(question.coordinates * mechanism.bits / 8)
    return Answer(
        mechanism=mechanism, family=family, levels=tuple(mechanism.levels.tolist()), mse=mse,
        mae=mechanism.mae(sample), one_bit=one_bit, bytes_per_client=per_round * question.rounds,
        half_width=NORMAL * math.sqrt(mse / question.clients),
        reasons=_reasons(question, family, mechanism, loss(mechanism), one_bit),
    )  # fmt: skip


def _reasons(
    question: Question, family: str, mechanism: Mechanism, loss: float, one_bit: float
) -> tuple[str, ...]:
    reasons = []
    if family == "randomized_response":
        reasons.append(
            "One bit with randomized response has the smallest loss here"
            + (
                "."
                if question.bits == 1
                else ": at this epsilon further levels on the grids tried buy nothing."
            )
        )
    else:
        reasons.append(
            f"The optimal table on these {mechanism.levels.size} levels has {100 * (1 - loss / one_bit):.3g} % less "
            f"{question.loss.upper()} than one-bit randomized response at the same certified epsilon."
        )
        if question.view == "local" and not question.prior:
            search = f"mezzotint design --epsilon {question.epsilon:g} --levels {mechanism.levels.size} ..."
            reasons.append(
                f"Searching the levels too takes seconds and gains up to some percent: {search}"
            )
    if question.view == "sum":
        reasons.append(
            "Its levels are evenly spaced, so that a secure sum of codes decodes to the sum of the values."
        )
    reasons.append(
        f"It is unbiased up to {above(mechanism.max_bias, 2)} data units, so that averages of many reports converge."
    )
    if question.coordinates * question.rounds > 1 and question.view == "local":
        reasons.append(
            f"A client sends {question.coordinates * question.rounds:,} reports and all of them are seen: the total "
            "claim below is what matters, not the epsilon of one report. Fewer coordinates or secure sums lower it."
        )
    if question.prior:
        reasons.append(
            "The design depends on the prior's column; if that is private, its release is not covered."
        )
    return tuple(reasons)


TRUST: dict[str, Trust] = {"local": "local", "sum": "secure_sum"}

_account = lru_cache(maxsize=512)(mz.privacy.account)


def claim(question: Question, advice: Answer) -> mz.privacy.Claim:
    """The claim of the whole release, by `mezzotint.privacy.account`."""
    return _account(
        mz.privacy.Release(
            mechanism=advice.mechanism,
            dimension=question.coordinates,
            rounds=question.rounds,
            delta=question.delta,
            trust=TRUST[question.view],
            clients=question.clients if question.view == "sum" else None,
        )
    )


# The lines that make it --------------------------------------------------------------------------------------


def commands(question: Question, advice: Answer) -> tuple[str, str]:
    """Two command lines: one that designs the mechanism, one that accounts the release. They run as they stand."""
    levels = "2" if advice.family == "randomized_response" else ",".join(map(repr, advice.levels))
    make = [
        "mezzotint",
        "design",
        "--family",
        advice.family,
        "--epsilon",
        repr(question.epsilon),
        f"--levels={levels}",
    ]
    if advice.family == "optimal":
        make += ["--knots", str(KNOTS[question.view])]
    make += [f"--lower={question.lower!r}", f"--upper={question.upper!r}", "--loss", question.loss]
    if question.prior:
        make += ["--prior", question.prior]
    make += ["--out", "m.json"]
    account = ["mezzotint", "account", "m.json", "--dimension", str(question.coordinates)]
    account += [
        "--rounds",
        str(question.rounds),
        "--observer",
        {"local": "reports", "sum": "secure_sum"}[question.view],
        "--delta",
        repr(question.delta),
    ]
    if question.view == "sum":
        account += ["--clients", str(question.clients)]
    return shlex.join(make), shlex.join(account)


def python_lines(question: Question, advice: Answer) -> str:
    """Python code that designs the mechanism and accounts the release."""
    problem = ", ".join(
        f"{name}={getattr(question, name)!r}" for name in ("epsilon", "lower", "upper", "loss")
    )
    lines = ["import mezzotint as mz", ""]
    if question.prior:
        path, _, column = question.prior.rpartition(":")
        lines.append(f"prior = mz.collect.read_values({path!r}, column={column!r})")
        problem += ", prior=prior"
    if advice.family == "randomized_response":
        lines.append(
            f'mechanism = mz.design.calibrate("randomized_response", levels=2, {problem}).mechanism'
        )
    else:
        levels, knots = list(advice.levels), KNOTS[question.view]
        lines.append(
            f"mechanism = mz.design.optimal(levels={levels!r}, knots={knots}, {problem}).mechanism"
        )
    crowd = f", clients={question.clients}" if question.view == "sum" else ""
    lines.append(
        f"release = mz.privacy.Release(mechanism=mechanism, dimension={question.coordinates}, "
        f"rounds={question.rounds}, trust={TRUST[question.view]!r}, delta={question.delta!r}{crowd})"
    )
    return "\n".join([*lines, "print(mz.privacy.account(release))"])


def summary(question: Question, advice: Answer) -> tuple[tuple[str, str], ...]:
    """The content of a page, as names and values."""
    mechanism = advice.mechanism
    return (
        (
            f"epsilon of one report ({mz.privacy.report_claim(mechanism).basis})",
            above(mechanism.epsilon, 8),
        ),
        ("levels", f"{mechanism.levels.size} ({mechanism.bits} bits)"),
        ("mean squared error", number(advice.mse, 6)),
        ("mean absolute error", number(advice.mae, 6)),
        ("one-bit randomized response, " + question.loss.upper(), number(advice.one_bit, 6)),
        ("bytes per client, all rounds", f"{advice.bytes_per_client:,}"),
        ("95 % half width of a mean over the clients, from privacy", number(advice.half_width, 4)),
    )


# The server ---------------------------------------------------------------------------------------------------------

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
        logging.getLogger("werkzeug").setLevel(
            logging.WARNING
        )  # it would write every request down, token included
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
    "{%css%}<style>"
    + asset("dashboard.css")
    + "</style></head><body>{%app_entry%}<footer>{%config%}{%scripts%}"
    "{%renderer%}</footer><script>" + asset("dashboard.js") + "</script></body></html>"
)

FIELDS = tuple(field.name for field in fields(Question))
_LIMITS = {name: f"a whole number from 1 to {most:,}" for name, most in COUNTS.items()}
_LIMITS["delta"] = "a number between 0 and 1"


def make_app(*, prior: str = "") -> dash.Dash:
    """The Dash application; its page begins with this FILE:COLUMN as a prior, or with uniform inputs."""
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
    answer(
        *(getattr(Question(), name) for name in FIELDS)
    )  # loads the solvers before anybody waits for them
    inputs = [dash.Input(name, "value") for name in FIELDS]
    answers = ("error", "summary", "reasons", "commands", "python", "distribution", "took")
    properties = ("children",) * 5 + ("figure", "children")
    outputs = [dash.Output(name, what) for name, what in zip(answers, properties, strict=True)]
    app.callback(*outputs, *inputs)(answer)
    tab = dash.State("tab", "data")
    app.callback(dash.Output("claim", "children"), *inputs, tab)(total_claim)
    app.callback(dash.Output("rivals", "figure"), dash.Output("limit", "children"), *inputs, tab)(
        rivals
    )
    return app


# The page ----------------------------------------------------------------------------------------------------


def _control(label: str, inner: Component) -> Component:
    named: JsonObject = {"htmlFor": vars(inner)["id"]} if isinstance(inner, dash.dcc.Input) else {}
    return dash.html.Div([dash.html.Label(label, **named), inner], className="control")


def _number(name: str, value: float, label: str, **limits: Any) -> Component:
    step = 1 if name in COUNTS else "any"
    return _control(
        label,
        dash.dcc.Input(
            id=name, type="number", value=value, step=step, debounce=True, required=True, **limits
        ),
    )


def _choice(name: str, value: str, label: str, options: dict[str, str]) -> Component:
    return _control(label, dash.dcc.RadioItems(id=name, value=value, options=options))


def _controls(prior: str) -> list[Component]:
    asked, slider = Question(), dash.dcc.Slider
    marks = {mark: str(mark) for mark in (0.1, 1, 2, 4, 6, 8)}
    epsilon = slider(id="epsilon", min=0.1, max=8, step=0.1, value=asked.epsilon, marks=marks)
    return [
        _control("epsilon of one report", epsilon),
        _control(
            "bits of one report", slider(id="bits", min=1, max=MOST_BITS, step=1, value=asked.bits)
        ),
        dash.html.Div(
            [_number("lower", -1, "lower"), _number("upper", 1, "upper")], className="pair"
        ),
        _choice(
            "loss",
            asked.loss,
            "make small",
            {"mse": "mean squared error", "mae": "mean absolute error"},
        ),
        _control(
            "inputs are like FILE:COLUMN (public data only); empty: uniform",
            dash.dcc.Input(
                id="prior",
                type="text",
                value=prior,
                debounce=True,
                placeholder="uniform on the range",
            ),
        ),
        _number("clients", asked.clients, "clients per round", min=1),
        dash.html.Div(
            [
                _number("coordinates", 1, "coordinates", min=1),
                _number("rounds", 1, "rounds", min=1),
            ],
            className="pair",
        ),
        _choice(
            "view",
            asked.view,
            "who sees what",
            {"local": "every report is seen", "sum": "only secure sums are"},
        ),
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
                    dcc.Loading(
                        _chart("Error of all rivals", dcc.Graph(id="rivals", **shown)), type="dot"
                    ),
                    html.P(id="took", className="note"),
                ]
            ),
        ],
    )


def _chart(name: str, inner: Component) -> Component:
    """A figure with an accessible name."""
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
            raise ParameterError(
                name, "empty or out of range", f"enter {_LIMITS.get(name, 'a number')}"
            )
        if name in COUNTS and isinstance(value, float) and value.is_integer():
            asked[name] = int(value)
    return Question(**asked)


def answer(*values: Control) -> tuple[object, ...]:
    """Everything that is there at once."""
    started = time.perf_counter()
    html = dash.html
    try:
        question = question_of(*values)
        advice = advise(question)
    except MezzotintError as error:
        return (str(error), [], [], "", "", _empty(), "")
    rows = [html.Tr([html.Td(name), html.Td(value)]) for name, value in summary(question, advice)]
    lines = "\n".join(f"$ {line}" for line in commands(question, advice))
    python = python_lines(question, advice)
    took = f"Designed in {1000 * (time.perf_counter() - started):.0f} ms on this machine; nothing left it."
    reasons = [html.Li(reason) for reason in advice.reasons]
    return (
        "",
        html.Table(html.Tbody(rows)),
        reasons,
        lines,
        python,
        _distribution(question, advice),
        took,
    )


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
        found = _CLAIMS.run(lambda: claim(question, advise(question)), tab)
    except MezzotintError as error:
        return str(error)
    return dash.no_update if found is None else str(found)


def _asked(values: Sequence[Control]) -> tuple[Question, str]:
    """The question, and the tab that asks it."""
    return question_of(*values[: len(FIELDS)]), "".join(map(str, values[len(FIELDS) :]))


def rivals(*values: Control) -> tuple[object, object]:
    """The comparison at equal epsilon, which takes seconds; for uniform inputs. Arguments as of `total_claim`."""
    try:
        question, tab = _asked(values)
        mechanism = advise(question).mechanism
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
    return {
        "data": [],
        "layout": {"height": 10, "xaxis": {"visible": False}, "yaxis": {"visible": False}},
    }


def _distribution(question: Question, advice: Answer) -> JsonObject:
    """Probabilities of the levels at both ends and the middle of the range."""
    mechanism = advice.mechanism
    inputs = (question.lower, (question.lower + question.upper) / 2, question.upper)
    bars = [
        Curve.of(f"input {x:.4g}", advice.levels, mechanism.pmf(x).tolist(), "bars") for x in inputs
    ]
    axes = ("decoded report (data units)", "probability")
    return figure_json(Figure.of("distribution", "Distribution of the report", axes, *bars))
