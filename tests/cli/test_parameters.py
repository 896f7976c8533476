"""`mezzotint design` from a family's own parameters: the table, its certified epsilon, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from mezzotint import families
from mezzotint.core.mechanism import Mechanism
from tolerances import FEW

ASKED = {
    "rqm": (
        ("--levels", "16", "--extension", "1", "--q", "0.42"),
        lambda: families.rqm(levels=16, extension=1.0, q=0.42),
    ),
    "erm": (
        ("--levels=-5.1,-0.1,0.1,5.1", "--gamma", "0.026"),
        lambda: families.erm(bins=[-5.1, -0.1, 0.1, 5.1], gamma=0.026),
    ),
    "pbm": (("--trials", "15", "--theta", "0.25"), lambda: families.pbm(trials=15, theta=0.25)),
}


@pytest.mark.parametrize("family", ASKED)
def test_a_family_from_its_own_parameters(invoke, tmp_path: Path, family: str) -> None:
    words, make = ASKED[family]
    place = tmp_path / "m.json"
    outcome = invoke("design", "--family", family, *words, "--out", place, "--json")
    assert outcome.status == 0
    table = make()
    assert outcome.json["epsilon"] == table.epsilon
    assert outcome.json["certified"] is True
    assert outcome.json["lower_bound"] is None
    assert outcome.json["mse"] == pytest.approx(table.mse(), rel=FEW)
    assert Mechanism.load(place) == table


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--family", "rqm", "--extension", "1"), ("--q", "needs extension, q")),
        (("--family", "rqm"), ("--epsilon", "extension, q")),
        ((), ("--epsilon", "privacy budget")),
        (("--family", "optimal", "--q", "0.4"), ("--q=0.4", "an epsilon")),
        (("--family", "pbm", "--theta", "0.2", "--trials", "3", "--q", "1"), ("--q", "theta")),
        (
            ("--family", "rqm", "--extension", "1", "--q", "0.4", "--epsilon", "1"),
            ("--epsilon", "follows from the parameters"),
        ),
        (("--family", "erm", "--gamma", "0"), ("--levels", "bins")),
        (
            ("--family", "pbm", "--theta", "0.2", "--trials", "3", "--levels", "4"),
            ("--levels", "--trials"),
        ),
        (
            ("--family", "pbm", "--theta", "0.2", "--trials", "3", "--loss", "cdf"),
            ("--loss", "mse or mae"),
        ),
        (
            ("--family", "pbm", "--theta", "0.2", "--trials", "3", "--delta", "1e-6"),
            ("--delta", "own parameters decide"),
        ),
        (("--categories", "3", "--q", "0.4"), ("--q", "categories")),
    ],
)
def test_what_does_not_go_together_is_refused(invoke, words, parts) -> None:
    outcome = invoke("design", *words)
    assert outcome.status == 2
    assert all(part in outcome.err for part in parts), outcome.err
