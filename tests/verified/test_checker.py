"""The proved checker: it agrees with the kernel, refuses the kernel's old hole, and reads files strictly.

Tests of the command are skipped where `make proofs` has not built it; tests of the sources always run.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from mezzotint import families, kernel, privacy
from mezzotint.kernel.units import canonical, sha256
from reference import verified
from reference.kernel import claim, sealed

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "verified"
PAGE = ROOT / "docs" / "proofs" / "verified.md"
TOTAL = 2**32

built = pytest.mark.skipif(not verified.COMMAND.exists(), reason=verified.ABSENT)


def _text(*rows: list[int], **more: Any) -> str:
    """A table's file."""
    knots, levels = list(range(len(rows))), list(range(len(rows[0])))
    document = {"knots": knots, "levels": levels, "weights": list(rows), **more}
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


LOW = 100_000
LEAKY = _text([TOTAL - LOW, LOW], [LOW, TOTAL - LOW])
SILENT = _text([TOTAL // 2] * 2, [TOTAL // 2] * 2)
FAIR = _text([3 * TOTAL // 4, TOTAL // 4], [TOTAL // 4, 3 * TOTAL // 4])


def _file(
    texts: list[str], kind: str, epsilon: str, delta: str = "0", release: Any = None, **proof: Any
) -> str:
    """A claim file about one report from each table."""
    tables = tuple((sha256(text), 1) for text in texts)
    described = kernel.ExactRelease(observer="reports", tables=tables, **(release or {}))
    stated = claim(described, epsilon, delta)
    return kernel.write_claim(stated, sealed(stated, kind, tables=dict.fromkeys(texts), **proof))


def _run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [verified.COMMAND, *arguments], capture_output=True, text=True, timeout=60
    )


# The proofs ------------------------------------------------------------------------------------------------------


def test_nothing_is_assumed_or_left_open() -> None:
    """`make proofs` checks what Coq prints; the sources have no axiom of their own and no gap."""
    sources = sorted(FOLDER.glob("*.v"))
    assert len(sources) >= 10
    for source in sources:
        text = re.sub(r"\(\*.*?\*\)", "", source.read_text(encoding="utf-8"), flags=re.DOTALL)
        words = (
            r"\b(Admitted|Axioms?|Parameters?|Conjecture|Abort|admit|give_up|Unset|bypass_check)\b"
        )
        assert not re.search(words, text), source.name


def test_every_file_is_compiled_and_every_axiom_is_on_the_page() -> None:
    script, page = (path.read_text(encoding="utf-8") for path in (FOLDER / "build.sh", PAGE))
    for source in FOLDER.glob("*.v"):
        assert source.stem in script
    for axiom in (FOLDER / "assumptions.txt").read_text(encoding="utf-8").split():
        assert f"`{axiom}`" in page


def test_the_pages_say_how_long_the_trusted_files_are() -> None:
    def lines(*paths: Path) -> int:
        return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)

    page = PAGE.read_text(encoding="utf-8")
    guide = (ROOT / "docs" / "recheck.md").read_text(encoding="utf-8")
    definitions = lines(FOLDER / "Definitions.v")
    assert f"`Definitions.v`, {definitions} lines" in page
    assert f"`verified/Definitions.v` ({definitions} lines" in guide
    assert f"{lines(*(FOLDER / 'command').glob('*.ml'))} lines of OCaml" in page


def test_every_theorem_of_the_page_is_in_the_sources() -> None:
    sources = "\n".join(path.read_text(encoding="utf-8") for path in FOLDER.glob("*.v"))
    stated = set(
        re.findall(
            r"(?:Theorem|Lemma|Corollary|Example|Definition|Fixpoint|Record|Inductive) (\w+)",
            sources,
        )
    )
    page = PAGE.read_text(encoding="utf-8")
    named = re.findall(r"`(\w+)\.v: (\w+)`", page)
    assert len(named) >= 10
    for file, name in named:
        assert name in stated
        assert name in (FOLDER / f"{file}.v").read_text(encoding="utf-8")


# Agreement -------------------------------------------------------------------------------------------------------


@built
def test_it_agrees_with_the_kernel_on_forged_claims() -> None:
    found, unexplained = verified.counts(20, 250)
    assert not unexplained
    assert found["certified by both"] > 10
    assert found["refused by both"] > 100


@built
@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_it_agrees_with_the_kernel_on_a_hundred_thousand_forged_claims() -> None:
    """The counts stand in the page."""
    total: Counter[str] = Counter()
    for seed in range(1, 11):
        found, unexplained = verified.counts(seed, 10_000)
        assert not unexplained, unexplained[0]
        total += found
    for label, count in sorted(total.items()):
        print(f"| {label} | {count:,} |")
    assert sum(total.values()) == 100_000


@built
def test_proposed_proofs_are_certified_by_both() -> None:
    """Proofs of every kind that the package proposes for reports, also memoised and seen by chance."""
    table = families.rqm(lower=-1, upper=1, levels=4, extension=1.0, q=0.42)
    shapes: list[dict[str, Any]] = [
        {"delta": 0.0}, {"delta": 1e-6}, {"delta": 1e-6, "rounds": 10, "dimension": 3},
        {"delta": 1e-6, "rounds": 100, "sampling_rate": 0.25}, {"delta": 0.0, "rounds": 365, "distinct": 10},
    ]  # fmt: skip
    kinds: set[str] = set()
    with verified.Checker() as checker:
        for shape in shapes:
            proved, proof = privacy.prove(privacy.Release(mechanism=table, **shape))
            assert proved.checked is not None
            assert proof is not None
            kinds.add(str(proof["kind"]))
            compared = verified.compare(checker, kernel.write_claim(proved.checked, proof))
            assert compared.label == "certified by both", compared
    assert {"ratio", "losses"} <= kinds


@built
def test_one_report_is_certified_at_the_delta_of_the_definition_and_not_below() -> None:
    """Randomized response (3/4, 1/4) at epsilon 0: 1/2, of one report and of one from each of two tables."""
    below = str(Fraction(1, 2) - Fraction(1, 10**18))
    with verified.Checker() as checker:
        assert checker.verdict(_file([FAIR], "delta", "0", "1/2"))[0] == 0
        status, sentence = checker.verdict(_file([FAIR], "delta", "0", below))
        assert (status, "delta is too small" in sentence) == (1, True)
        seen: dict[str, Any] = {"sampling": "public", "rate": Fraction(1, 2)}
        assert checker.verdict(_file([FAIR], "delta", "0", "1/4", seen))[0] == 0
        assert checker.verdict(_file([FAIR], "delta", "0", "2499/10000", seen))[0] == 1


@built
def test_pure_epsilon_is_the_logarithm_of_the_worst_ratio() -> None:
    """log 3 = 1.09861228866810969139524523692252570464749..., of both roundings."""
    with verified.Checker() as checker:
        assert checker.verdict(_file([FAIR], "ratio", "1.0986122886681096913952452369226"))[0] == 0
        assert checker.verdict(_file([FAIR], "ratio", "1.0986122886681096913952452369225"))[0] == 1
        assert checker.verdict(_file([SILENT], "ratio", "0"))[0] == 0
        gap = _text([TOTAL, 0], [TOTAL // 2] * 2)
        status, sentence = checker.verdict(_file([gap], "ratio", "1000"))
        assert (status, "impossible" in sentence) == (1, True)


# The kernel's old hole -------------------------------------------------------------------------------------------

WIDE, LEFT = {"low": -120, "high": 120}, {"low": -200, "high": 0}
HOLES = [
    ([LEAKY, SILENT], [WIDE, LEFT], {}, ".999953433871"),
    ([SILENT, LEAKY], [LEFT, WIDE], {}, ".999953433871"),
    ([LEAKY, SILENT, SILENT], [WIDE, LEFT, LEFT], {}, ".999953433871"),
    ([LEAKY, SILENT], [WIDE, LEFT], {"rounds": 2}, ".999953433871"),
    (
        [LEAKY, SILENT],
        [WIDE, LEFT],
        {"sampling": "public", "rate": Fraction(1, 2)},
        ".499976716936",
    ),
]


@built
@pytest.mark.parametrize(("texts", "grids", "release", "truth"), HOLES)
def test_the_hole_of_equal_rows_is_refused(
    texts: list[str], grids: list[Any], release: dict[str, Any], truth: str
) -> None:
    """Two equal rows have the curve (1 - c)+ below c = 1: a premise that the values of a pair carry by themselves.

    The program computes the value of every ordered pair at every point, a row beside itself among them, and what
    proposed masses lack there is missing mass; so the silent table takes nothing from the leaky one.
    """
    more = {"sampled": WIDE} if release.get("sampling") else {}
    proof = {"step": "1/10", "tail": 160, "grids": grids, **more}
    below = str(Fraction(truth) - Fraction(1, 10**8))
    with verified.Checker() as checker:
        for delta in ("1/1000000000", below):
            status, sentence = checker.verdict(_file(texts, "losses", "0", delta, release, **proof))
            assert status == 1
            assert "delta is too small at this epsilon" in sentence


def test_the_missing_premise_is_a_theorem() -> None:
    """With the premise for c >= 1 alone the conclusion is false: proved by an instance."""
    source = (FOLDER / "Premise.v").read_text(encoding="utf-8")
    assert "Theorem premise_at_c_below_1_is_needed" in source
    assert "0 <= a -> a <= b -> hs w a b <= curve s m2 a b" in source


# Sizes -----------------------------------------------------------------------------------------------------------


def _sized(
    coordinates: list[int], kind: str, epsilon: str, delta: str, release: Any = None, **proof: Any
) -> str:
    """A claim about many reports from randomized response (3/4, 1/4), one entry per number of them."""
    tables = tuple((sha256(FAIR), count) for count in coordinates)
    described = kernel.ExactRelease(observer="reports", tables=tables, **(release or {}))
    stated = claim(described, epsilon, delta)
    return kernel.write_claim(stated, sealed(stated, kind, tables=[FAIR], **proof))


HALF: dict[str, Any] = {"sampling": "public", "rate": Fraction(1, 2)}
AWAY, ORIGIN = {"low": 2**22, "high": 2**22}, {"low": 0, "high": 0}
TWO_TRILLION = [10**12, 10**12, 2**41 - 2 * 10**12]


@built
@pytest.mark.parametrize("fewer", [0, 1])
def test_lengths_do_not_wrap(tmp_path: Path, fewer: int) -> None:
    """2^41 reports with losses of 2^22 steps: a gap of 2^63 steps, once taken for none, and a false claim certified.

    The claim is false: half of the time all reports are seen, which differ almost surely, so delta is about 1/2.
    """
    counts = [*TWO_TRILLION[:2], TWO_TRILLION[2] - fewer]
    proof = {"step": "1/1048576", "tail": 160, "grids": [AWAY] * 3, "sampled": ORIGIN}
    path = tmp_path / "wrap.json"
    path.write_text(_sized(counts, "losses", "0", "1e-30", HALF, **proof), encoding="utf-8")
    ran = _run(path)
    assert ran.returncode == 1
    assert ran.stdout.startswith("REFUSED at size")


@built
def test_the_self_test_knows_that_lengths_raise() -> None:
    ran = _run("--self-test")
    assert ran.returncode == 0
    assert "lengths: none wraps" in ran.stdout


OVERSIZED = [
    # Each once aborted, or took minutes, although the first guard refuses it.
    ([1], "delta", "10000000000", {}, {}, "epsilon is out of range"),
    ([1], "ratio", "1e3000", {}, {}, "epsilon is out of range"),
    (
        [1],
        "losses",
        "1",
        {},
        {"step": "1/1000000", "tail": 160, "grids": [{"low": -(2**22), "high": 2**22}]},
        "grid: it is empty, too long",
    ),
    ([1], "losses", "1", {}, {"step": "1e3000", "tail": 160, "grids": [ORIGIN]}, "grid: the step"),
    (
        [10**12],
        "losses",
        "0",
        HALF,
        {
            "step": "1/1000",
            "tail": 160,
            "grids": [{"low": -12_000, "high": 12_000}],
            "sampled": {"low": 0, "high": 2**22},
        },
        "grid: it is empty, too long",
    ),
    (
        [10**6],
        "losses",
        "0",
        HALF,
        {"step": "1/1048576", "tail": 160, "grids": [AWAY], "sampled": ORIGIN},
        "size: a product, or a round that is seen",
    ),
    (
        [10**6],
        "losses",
        "0",
        HALF,
        {"step": "1/1048576", "tail": 160, "grids": [{"low": -(2**22), "high": -(2**22)}], "sampled": ORIGIN},
        "size: a product, or a round that is seen",
    ),
]  # fmt: skip


@built
@pytest.mark.parametrize(("coordinates", "kind", "epsilon", "release", "proof", "words"), OVERSIZED)
def test_sizes_are_refused_before_anything_is_computed(
    tmp_path: Path,
    coordinates: list[int],
    kind: str,
    epsilon: str,
    release: dict[str, Any],
    proof: dict[str, Any],
    words: str,
) -> None:
    """The limit is one second of processor time: without the guards they take more, or end with a signal."""
    path = tmp_path / "claim.json"
    text = _sized(coordinates, kind, epsilon, "1", release, **proof)
    path.write_text(text, encoding="utf-8")
    ran = _run("--seconds", "1", path)
    assert (ran.returncode, words in ran.stdout) == (1, True), ran


@built
def test_a_check_that_takes_too_long_ends(tmp_path: Path) -> None:
    """A trillion reports on a grid of 24,001 points: 40 products, of up to a million masses each."""
    path = tmp_path / "claim.json"
    proof = {"step": "1/1000", "tail": 160, "grids": [{"low": -12_000, "high": 12_000}]}
    path.write_text(_sized([10**12], "losses", "0", "1", **proof), encoding="utf-8")
    ran = _run("--seconds", "1", path)
    assert ran.returncode == 1
    assert ran.stdout.startswith("NOT CHECKED: the check takes more than 1 seconds")
    for seconds in ("0", "-1", "x", "10000000000"):
        assert _run("--seconds", seconds, path).returncode == 2


@built
def test_simulations_are_refused() -> None:
    """Draws from a seed protect nobody, however good the proof."""
    with verified.Checker() as checker:
        assert checker.verdict(_file([FAIR], "ratio", "1.1"))[0] == 0
        status, sentence = checker.verdict(_file([FAIR], "ratio", "1.1", release={"seeded": True}))
    assert status == 1
    assert "no privacy" in sentence


@built
def test_the_sentence_names_tables_and_the_claim_by_whole_hashes() -> None:
    text = _file([FAIR], "ratio", "1.1")
    with verified.Checker() as checker:
        sentence = checker.verdict(text)[1]
    assert sha256(FAIR) in sentence
    assert json.loads(text)["proof"]["claim_sha256"] in sentence


# Files -----------------------------------------------------------------------------------------------------------


@built
def test_the_command_has_an_exit_status_and_a_sentence(tmp_path: Path) -> None:
    good, bad, broken = (tmp_path / name for name in ("good.json", "bad.json", "broken.json"))
    good.write_text(_file([FAIR], "ratio", "1.1"), encoding="utf-8")
    bad.write_text(_file([FAIR], "ratio", "1.0"), encoding="utf-8")
    broken.write_text(good.read_text(encoding="utf-8")[:-5], encoding="utf-8")
    for path, status, words in (
        (good, 0, "certified: (1.1, 0)-differential privacy"),
        (bad, 1, "REFUSED at pure: epsilon is too small"),
        (broken, 2, "UNREADABLE: not valid JSON"),
        (tmp_path / "absent.json", 2, "UNREADABLE"),
    ):
        ran = _run(path)
        assert (ran.returncode, ran.stdout.startswith(words)) == (status, True), ran
    assert _run().returncode == 2


@built
def test_a_proof_may_stand_in_a_file_of_its_own(tmp_path: Path) -> None:
    file = json.loads(_file([FAIR], "ratio", "1.1"))
    proof = file.pop("proof")
    for name, value in (
        ("claim.json", file),
        ("proof.json", proof),
        ("both.json", {**file, "proof": proof}),
    ):
        (tmp_path / name).write_text(canonical(value), encoding="utf-8")
    assert _run(tmp_path / "claim.json", tmp_path / "proof.json").returncode == 0
    assert _run(tmp_path / "claim.json").returncode == 2
    assert _run(tmp_path / "both.json", tmp_path / "proof.json").returncode == 2


@built
def test_a_bundle_of_the_package_is_checked(tmp_path: Path) -> None:
    table = families.randomized_response(epsilon=1.0)
    accounted, proof = privacy.prove(privacy.Release(mechanism=table, rounds=3, delta=0.0))
    assert accounted.checked is not None
    assert proof is not None
    path = tmp_path / "claim.json"
    path.write_text(kernel.write_claim(accounted.checked, proof), encoding="utf-8")
    assert _run(path).returncode == 0


@built
def test_hashes_are_those_of_hashlib_at_every_length() -> None:
    """A table's text is hashed: 140 lengths, ASCII and not, go through every number of padding bytes."""
    with verified.Checker() as checker:
        for size in range(140):
            for letter in ("x", "é", "\U0001f600"):
                table = _text([TOTAL // 2] * 2, [TOTAL // 2] * 2, categories=[letter * size])
                status, sentence = checker.verdict(_file([table], "ratio", "0"))
                assert status == 0, (size, letter, sentence)


@built
def test_a_changed_table_or_claim_is_refused() -> None:
    file = json.loads(_file([FAIR], "ratio", "1.1"))
    changed: list[dict[str, Any]] = []
    table = file["proof"]["tables"][0]
    changed.append(
        {**file, "proof": {**file["proof"], "tables": [table.replace("3221225472", "3221225471")]}}
    )
    changed.append({**file, "statement": {**file["statement"], "epsilon": "1.2"}})
    changed.append({**file, "release": {**file["release"], "rounds": 2}})
    with verified.Checker() as checker:
        assert checker.verdict(canonical(file))[0] == 0
        for document in changed:
            assert checker.verdict(canonical(document))[0] == 1
            # Sealed anew they are other claims, of which the first two have no table or are true.
            assert checker.verdict(verified.sealed_text(document))[0] == (
                document is not changed[1]
            )


HOSTILE = [
    '{"format":"mezzotint-claim"', "[]", "", "null", "{" * 300, "[" * 5000, '{"format":"mezzotint-claim","format":1}',
    '{"a":NaN}', '{"a":1e5}', '"\\ud800"', '{"format":"\\u001b[2Kcertified: all"}', "1" * 5000, '"' + "x" * 70_000,
]  # fmt: skip


@built
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_what_is_no_claim_is_unreadable(text: str) -> None:
    with verified.Checker() as checker:
        status, sentence = checker.verdict(text)
    assert status == 2
    assert sentence.startswith("UNREADABLE")
    assert "\x1b" not in sentence


@built
@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("statement", "epsilon"), "-1"), (("statement", "epsilon"), "1e9999"), (("statement", "delta"), "1/0"),
        (("statement", "epsilon"), 1.5), (("statement", "more"), "1"), (("release", "rounds"), 0),
        (("release", "rounds"), True), (("release", "assumptions"), []), (("release", "trust"), "central"),
        (("release", "sampling"), {"kind": "public", "rate": "1"}), (("proof", "more"), 1), (("proof", "precision"), 8),
        (("release", "sampling"), {"kind": "public", "rate": "2/4"}), (("proof", "tables"), ["{}"]), (("more",), 1),
        (("release", "distinct"), 2), (("release", "neighboring"), "add_or_remove_one"), (("version",), 2),
    ],
)  # fmt: skip
def test_edited_claims_are_refused_by_both(place: tuple[str, ...], value: Any) -> None:
    document = json.loads(_file([FAIR], "ratio", "1.1"))
    target = document
    for key in place[:-1]:
        target = target[key]
    target[place[-1]] = value
    with verified.Checker() as checker:
        texts = [json.dumps(document)]
        if value != 1.5:
            texts.append(verified.sealed_text(document))
        for text in texts:
            assert verified.compare(checker, text).label == "refused by both"
