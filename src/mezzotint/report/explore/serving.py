"""Serving a page to this machine alone: the loopback address, a random token, and nobody else's page."""

from __future__ import annotations

import hmac
import logging
import secrets
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, final

import flask
from werkzeug import serving

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
