"""Reports drawn outside Python, and counted one by one."""

from __future__ import annotations

import functools
import json
import math
import re
import shutil
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import browser
from mezzotint import Mechanism, collect, families
from mezzotint.cli import run
from mezzotint.core.errors import FileFormatError, ParameterError
from reference import sampler as slow

CLIENTS = Path(__file__).resolve().parents[2] / "clients"
VECTORS = json.loads((CLIENTS / "vectors" / "sampling.json").read_text(encoding="utf-8"))
MECHANISM = families.randomized_response(lower=0, upper=100, epsilon=1.0)
COLOURS = families.categorical(categories=["red", "green"], epsilon=1.0, other=True)


def report(code: Any = 1, mechanism: Mechanism = MECHANISM, **changes: Any) -> bytes:
    found = {
        "format": "mezzotint-report",
        "version": 1,
        "sha256": mechanism.sha256,
        "code": code,
        **changes,
    }
    return json.dumps(found).encode()


# The vectors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", VECTORS["draws"], ids=lambda entry: entry["name"])
def test_the_slow_twin_reproduces_the_codes(entry: dict[str, Any]) -> None:
    mechanism = Mechanism.from_json(entry["mechanism"])
    x = np.array(entry["inputs"], dtype=object)
    if mechanism.categories is not None:  # a reporter takes one value at a time, of any kind
        x = np.concatenate([mechanism.numbers([value]) for value in entry["inputs"]])
    x = x.astype(np.float64)
    words = np.array([int(word, 16) for word in entry["words"]], dtype=np.uint64)
    assert slow.codes_from_words(mechanism, x, words).tolist() == entry["codes"]


def test_the_slow_twin_reproduces_the_words() -> None:
    assert len(VECTORS["keystreams"]) >= 4
    for entry in VECTORS["keystreams"]:
        if entry["first"] < 2**20:  # it draws every part from its beginning
            drawn = slow.element_words(
                bytes.fromhex(entry["key"]), entry["first"], len(entry["words"])
            )
            assert [f"{word:016x}" for word in drawn.tolist()] == entry["words"]


def test_the_files_to_refuse_are_refused() -> None:
    for entry in VECTORS["refused"]:
        with pytest.raises(FileFormatError):
            Mechanism.from_json(entry["text"])


def test_the_committed_vectors_are_what_their_script_makes() -> None:
    names: dict[str, Any] = {
        "__name__": "vectors",
        "__file__": str(CLIENTS / "vectors" / "make_sampling.py"),
    }
    text = (CLIENTS / "vectors" / "make_sampling.py").read_text(encoding="utf-8")
    exec(compile(text, "make_sampling.py", "exec"), names)
    made = json.loads(json.dumps(names["document"]()))
    assert made == VECTORS


# The module --------------------------------------------------------------------------------------------------


def node(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    program = shutil.which("node")
    if program is None:
        pytest.skip("there is no node on this machine")
    return subprocess.run(
        [program, *map(str, arguments)], capture_output=True, text=True, timeout=120, **options
    )


def test_the_module_is_small_and_stands_alone() -> None:
    text = (CLIENTS / "javascript" / "mezzotint.mjs").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 300
    assert not re.search(r"^import |import\(|require\(['\"]|Math\.random", text, re.MULTILINE)


def test_node_conforms() -> None:
    done = node(CLIENTS / "javascript" / "conformance.mjs")
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "conforms", "")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("high < Math.floor", "high <= 8 + Math.floor"),
        (">>> 0 < cells[cell]", ">>> 0 <= cells[cell]"),
        ("threshold * size + heavy", "threshold * size + cell"),
        ("x >= this.#segments", "x > this.#segments"),
        ("2n ** 32n + 2n", "2n ** 32n + 1n"),
        ("new Uint32Array(2))", "new Uint32Array(2)).fill(7)"),
        ("? MISSING :", "? OTHER :"),
        ("exponent >= 16", "exponent >= 17"),
        ("BigInt(high) * BigInt(bottom) >", "0n * BigInt(bottom) >"),
        ('=== TOTAL, "every', '>= 0, "every'),
    ],
)  # fmt: skip
def test_the_vectors_catch_a_wrong_module(tmp_path: Path, old: str, new: str) -> None:
    shutil.copytree(CLIENTS, tmp_path / "clients", ignore=shutil.ignore_patterns("service"))
    module = tmp_path / "clients" / "javascript" / "mezzotint.mjs"
    text = module.read_text(encoding="utf-8")
    assert text.count(old) == 1
    module.write_text(text.replace(old, new), encoding="utf-8")
    assert node(tmp_path / "clients" / "javascript" / "conformance.mjs").returncode == 1


def test_hashes_agree_on_any_double(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 2**64, size=4000, dtype=np.uint64)
    doubles = bits.view(np.float64)
    levels = [*np.unique(doubles[np.isfinite(doubles)]).tolist(), 0.0]
    edge = [10.0**k for k in range(-7, 23)] + [
        5e-324,
        1.7976931348623157e308,
        0.1,
        123456789012345680.0,
        1e16 - 2,
    ]
    table = {
        "knots": [0.0, 1.0],
        "levels": levels + edge,
        "weights": [[1]],
        "categories": ['é\x7f\ud800\n"\\'],
    }
    (tmp_path / "t.json").write_text(json.dumps(table), encoding="utf-8")
    script = (
        f"import {{ canonical }} from {json.dumps((CLIENTS / 'javascript' / 'mezzotint.mjs').as_uri())};"
        "import { readFileSync } from 'node:fs';"
        "process.stdout.write(canonical(JSON.parse(readFileSync(process.argv[2], 'utf8'))));"
    )
    (tmp_path / "c.mjs").write_text(script, encoding="utf-8")
    done = node(tmp_path / "c.mjs", tmp_path / "t.json")
    assert done.stdout == json.dumps(table, separators=(",", ":")), done.stderr


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    with browser.chromium() as driver:
        yield driver


def test_chromium_conforms(session: Any) -> None:
    quiet = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    quiet.extensions_map = {**SimpleHTTPRequestHandler.extensions_map, ".mjs": "text/javascript"}
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(quiet, directory=str(CLIENTS))
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        session.get(f"http://127.0.0.1:{server.server_port}/vectors/sampling.json")
        script = (
            "const done = arguments[0];"
            "(async () => { const { problems } = await import('/javascript/conformance.mjs');"
            "return problems(await (await fetch('/vectors/sampling.json')).json()); })()"
            ".then(done, (error) => done([String(error)]));"
        )
        session.set_script_timeout(120)
        assert session.execute_async_script(script) == []
        server.shutdown()


# The counter -------------------------------------------------------------------------------------------------


def test_single_reports_become_counts_that_an_estimate_reads(tmp_path: Path) -> None:
    counter = collect.Counter(MECHANISM, COLOURS)
    codes = MECHANISM.privatize(np.full(3000, 80.0), 1).tolist()
    counter.add(*map(report, codes))
    counter.add(report(0, COLOURS).decode())
    counts = counter.counts(MECHANISM)
    assert counts.counts.tolist() == np.bincount(codes, minlength=2).tolist()
    assert counts.seeded is None
    found = collect.estimate(counts)
    assert isinstance(found, collect.Estimate)
    assert found.mean.low <= 80 <= found.mean.high
    assert counter.counts(COLOURS).counts.tolist() == [1, 0, 0]
    collect.save_counts(counts, tmp_path / "c.json")
    with pytest.raises(ParameterError, match="count twice"):
        counter.counts(MECHANISM).merge(collect.load_counts(tmp_path / "c.json"))


@pytest.mark.parametrize(
    "wrong",
    [
        b"", b"[]", b"{", b"\xff\xfe", b"null", b"[" * 1000, b" " * 1025, report(2), report(-1), report(True),
        report(1.0), report("1"), report(sha256="x"), report(sha256=None), report(sha256=[1]), report(version=True),
        report(version=2), report(format="mezzotint-reports"), report(extra=1), b'{"code": 1}',
        report()[:-1] + b"," + b'"x":1' * 300 + b"}", report()[:-1] + b',"code":1}', None, 1, [report()], {"code": 1},
    ],
)  # fmt: skip
def test_what_is_no_report_is_refused_and_not_repeated(tmp_path: Path, wrong: Any) -> None:
    counter = collect.Counter(MECHANISM, log=tmp_path / "log")
    with pytest.raises(FileFormatError, match=r"^report: ") as caught:
        counter.add(report(), wrong)
    assert counter.counts().n == 0  # all or none
    assert len(str(caught.value)) < 120


def test_codes_that_the_table_never_draws_are_refused() -> None:
    table = Mechanism(knots=[0.0, 1.0], levels=[0.0, 0.5, 1.0], weights=[[2**31, 0, 2**31]] * 2)
    with pytest.raises(FileFormatError, match="its code"):
        collect.Counter(table).add(report(1, table))


def test_a_log_goes_on_where_it_stopped_and_is_one_run(tmp_path: Path) -> None:
    first = collect.Counter(MECHANISM, COLOURS, log=tmp_path / "log")
    first.add(report(1), report(0))
    second = collect.Counter(COLOURS, MECHANISM, log=tmp_path / "log")
    second.add(report(1))
    assert first.counts(MECHANISM).counts.tolist() == [1, 2]
    assert first.counts(MECHANISM).provenance.runs == second.counts(MECHANISM).provenance.runs
    with pytest.raises(FileFormatError, match="another run"):
        collect.Counter(MECHANISM, log=tmp_path / "log")
    with pytest.raises(ParameterError, match="name one"):
        first.counts()
    with pytest.raises(ParameterError, match="each once"):
        collect.Counter(MECHANISM, MECHANISM)
    with pytest.raises(ParameterError, match=r"mechanisms=m\.json: need an object of the class"):
        collect.Counter("m.json")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ParameterError, match=r"mechanism=m\.json: need an object of the class"):
        first.counts("m.json")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ParameterError, match="is counted here"):
        first.counts(families.randomized_response(lower=0, upper=1, epsilon=1.0))


@pytest.mark.slow
def test_a_killed_counter_loses_and_doubles_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; from mezzotint import collect, Mechanism\n"
        "counter = collect.Counter(Mechanism.load(sys.argv[1]), log=sys.argv[2])\n"
        "text = open(sys.argv[3]).read()\n"
        "while True:\n    counter.add(text); print('.', flush=True)\n"
    )
    MECHANISM.save(tmp_path / "m.json")
    (tmp_path / "r.json").write_bytes(report())
    acknowledged = 0
    for _ in range(3):
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                code,
                tmp_path / "m.json",
                tmp_path / "log",
                tmp_path / "r.json",
            ],
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        for _ in range(50):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        acknowledged += 50 + process.stdout.read().count(b".")
        process.wait()
        process.stdout.close()
    counted = collect.Counter(MECHANISM, log=tmp_path / "log").counts().n
    assert acknowledged <= counted <= acknowledged + 3  # on disk, and killed before it said so


# From the page to the estimate ---------------------------------------------------------------------------------


@pytest.fixture
def service(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[str], Path]]:
    MECHANISM.save(tmp_path / "mechanism.json")
    script = CLIENTS / "service" / "service.py"
    process = subprocess.Popen(
        [sys.executable, script, "mechanism.json", "reports.log", "--port", "0"],
        stdout=subprocess.PIPE, cwd=tmp_path, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip(), process, tmp_path
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def post(address: str, body: bytes, path: str = "report") -> int:
    try:
        with urllib.request.urlopen(
            urllib.request.Request(address + path, data=body), timeout=20
        ) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def stop(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 0


def test_the_service_takes_reports_and_nothing_else(
    service: tuple[str, subprocess.Popen[str], Path],
) -> None:
    address, process, folder = service
    assert [post(address, report(code)) for code in (0, 1, 1)] == [204] * 3
    assert [post(address, wrong) for wrong in (report(7), b"{}", b"x" * 2000)] == [400, 400, 413]
    assert post(address, report(), path="../service.py") == 404
    for name in ("", "page.mjs", "mezzotint.mjs", "mechanism.json"):
        with urllib.request.urlopen(address + name, timeout=20) as answer:
            assert answer.headers["Content-Security-Policy"]
            assert answer.read()
    stop(process)
    assert collect.load_counts(folder / "counts.json").counts.tolist() == [1, 2]


def test_from_a_browser_page_to_an_estimate(
    service: tuple[str, subprocess.Popen[str], Path],
    session: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    address, process, folder = service
    browser.requests(session)  # those of tests before
    session.get(address)
    browser.until(lambda: "checked" in session.find_element("css selector", "#about").text)
    epsilon = re.search(r"at most ([\d.]+)", session.find_element("css selector", "#about").text)
    assert epsilon is not None
    assert float(epsilon[1]) == MECHANISM.epsilon
    field = session.find_element("css selector", "input")
    field.send_keys("seventy")
    session.find_element("css selector", "button").click()
    browser.until(lambda: "not NaN" in session.find_element("css selector", "output").text)
    field.clear()
    field.send_keys("70")
    session.find_element("css selector", "button").click()
    browser.until(lambda: "Sent" in session.find_element("css selector", "output").text)
    assert not session.find_element("css selector", "button").is_enabled()
    script = (
        "const done = arguments[0];"
        "(async () => { const { Mechanism } = await import('/mezzotint.mjs');"
        "const m = await Mechanism.parse(await (await fetch('/mechanism.json')).text());"
        "for (let i = 0; i < 400; i++) {"
        "const answer = await fetch('/report', { method: 'POST', body: m.message(70) });"
        "if (!answer.ok) return answer.status; } return 'sent'; })().then(done, (error) => done(String(error)));"
    )
    session.set_script_timeout(120)
    assert session.execute_async_script(script) == "sent"
    assert all(url.startswith(address) for url in browser.requests(session))
    stop(process)
    capsys.readouterr()
    assert run(["estimate", str(folder / "counts.json"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["n"] == 401
    # One sided tail of 5 s.d.: less than one false alarm in a million.
    assert abs(found["mean"] - 70) <= 5 * math.sqrt(float(MECHANISM.variance(70.0)) / 401)
