"""Ranked codebooks: order statistics, integer tables and their certificate, designs, reports and estimates."""

from __future__ import annotations

import dataclasses
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st

from laws.registry import judges
from mezzotint import Mechanism, ParameterError, kernel, privacy
from mezzotint.core import loss
from mezzotint.core.errors import FileFormatError, InfeasibleError
from mezzotint.vectors import RankedCodebook, codewords as order_statistics, ranked_codebook
from mezzotint.vectors.codewords import Codebook
from mezzotint.vectors.rank_table import RankTable, rank_table
from reference import ranked as twin
from reference.kernel import accepts, forgeries, resealed
from tolerances import FEW, MANY, UNIT, printed

UNIT_TABLES = [
    # M, k, epsilon, w_lo, w_hi, r
    (2, 1, 1.0, 1155094610, 3139872686, 0),
    (16, 6, 1.0, 163246589, 443750234, 2),
    (256, 108, 0.5, 13172246, 21717360, 8),
    (256, 17, 4.0, 3679818, 200911223, 3),
    (256, 1, 8.0, 1327263, 3956515231, 0),
    (4096, 13, 8.0, 100267, 298890548, 11),
]


def simplex(dimension, epsilon, codewords, top, kind="S", **more):
    table = rank_table(codewords=codewords, top=top, epsilon=epsilon)
    return RankedCodebook(table=table, kind=kind, dimension=dimension, norms="unit", **more)


@pytest.mark.parametrize("bits", [None, 8, 80])
@pytest.mark.parametrize("epsilon", [18.0, 40.0, 200.0])
def test_there_is_a_codebook_for_each_epsilon_that_may_be_asked_for(epsilon, bits):
    scheme = ranked_codebook(100, epsilon, bits)
    assert scheme.epsilon <= epsilon
    assert scheme.bits <= (62 if bits is None else min(bits, 62))
    assert scheme.mse >= scheme.optimum > 0


# Constants -----------------------------------------------------------------------------------------------------


def test_sums_of_largest_normals():
    # S_1(2) = 1 / sqrt(pi) and S_1(3) = 3 / (2 sqrt(pi)) in closed form; the others by quadrature with 4000 nodes.
    known = {
        (2, 1): math.pi**-0.5,
        (3, 1): 1.5 * math.pi**-0.5,
        (4096, 1): 3.6260821777,
        (4096, 100): 234.4674736,
    }
    for (count, top), value in known.items():
        assert order_statistics.top_normal(count, top)[0] == pytest.approx(value, rel=MANY)
    assert order_statistics.top_folded(2, 1) == pytest.approx(
        (math.sqrt(2 / math.pi), 1.0), rel=FEW
    )
    # The larger of two |N(0,1)|: 2 / sqrt(pi).
    assert order_statistics.top_folded(4, 1)[0] == pytest.approx(2 / math.sqrt(math.pi), rel=1e-11)


@given(count=st.integers(2, 60), data=st.data())
def test_sums_of_largest_normals_obey_their_symmetries(count, data):
    top = data.draw(st.integers(0, count))
    (first, second), (left, others) = (
        order_statistics.top_normal(count, k) for k in (top, count - top)
    )
    assert first == pytest.approx(left, abs=1e-10)  # all M sum to 0
    assert second + others == pytest.approx(count, rel=1e-10)
    if count % 2 == 0:
        (first, second), (left, others) = (
            order_statistics.top_folded(count, k) for k in (top, count - top)
        )
        assert first == pytest.approx(left, abs=MANY)
        assert second + others == pytest.approx(count, rel=MANY)


def test_largest_normals_agree_with_simulation():
    # 40,000 samples; bounds of 5 standard errors (false alarm below 1e-5).
    drawn = np.sort(np.random.default_rng(5).normal(size=(40000, 12)), axis=1)
    sums = drawn[:, -3:].sum(axis=1)
    assert abs(sums.mean() - order_statistics.top_normal(12, 3)[0]) < 5 * sums.std() / 200
    folded = np.sort(
        np.abs(drawn[:, :6] * 0 + np.random.default_rng(6).normal(size=(40000, 6))), axis=1
    )[:, -2:]
    assert (
        abs(folded.sum(axis=1).mean() - order_statistics.top_folded(12, 2)[0])
        < 5 * folded.sum(axis=1).std() / 200
    )


def test_constant_of_privunitg():
    known = {
        0.25: 100.578, 0.5: 25.17985, 1: 6.33004, 1.5: 2.83897, 2: 1.61668, 3: 0.742550, 4: 0.435321, 5: 0.29198,
        6: 0.213166, 8: 0.132913, 10: 0.09409, 12: 0.07189,
    }  # fmt: skip
    for epsilon, value in known.items():
        # Printed to four digits or more.
        assert order_statistics.gaussian_constant(float(epsilon))[0] == pytest.approx(
            value, rel=5e-5
        )
    assert order_statistics.gaussian_constant(4.0)[1] == pytest.approx(
        0.0648, abs=5e-5
    )  # four printed decimals
    assert order_statistics.mean_norm(100) ** 2 == pytest.approx(99.501256, rel=1e-7)  # as printed


@pytest.mark.parametrize(
    ("codewords", "epsilon", "top", "spread"),
    [
        (4, 1.0, 1, 0.30931616), (16, 1.0, 6, 0.37686429), (256, 1.0, 89, 0.39617013), (256, 4.0, 17, 1.50458880),
        (1024, 8.0, 4, 2.69719717), (4096, 8.0, 13, 2.73140566),
    ],
)  # fmt: skip
def test_separation_of_the_means(codewords, epsilon, top, spread):
    delta = math.expm1(epsilon) / (top * math.exp(epsilon) + codewords - top)
    # Eight printed digits.
    assert delta * order_statistics.top_normal(codewords, top)[0] == pytest.approx(spread, rel=2e-8)


@pytest.mark.parametrize(
    ("kind", "codewords", "epsilon", "value"),
    [
        ("S", 2, 1.0, 7.35556), ("S", 16, 1.0, 6.60087), ("S", 256, 4.0, 0.440010), ("S", 1024, 8.0, 0.1373252),
        ("X", 16, 1.0, 6.61308), ("X", 256, 0.5, 25.22211), ("X", 256, 4.0, 0.441270),
    ],
)  # fmt: skip
def test_error_constants_of_unit_codewords(kind, codewords, epsilon, value):
    scheme = ranked_codebook(
        2000, epsilon, codewords.bit_length() - 1, codebook=kind, norms="unit", tolerance=0.05
    )
    constant = (scheme.mse + 1) / order_statistics.mean_norm(2000) ** 2
    assert constant == pytest.approx(value, rel=1e-5)  # six printed digits
    if codewords == 2:  # Duchi, Jordan and Wainwright's one bit
        one_bit = math.pi / 2 * ((math.e + 1) / (math.e - 1)) ** 2
        # Weights are rounded to 2^-32 of probabilities of a quarter, and squared.
        assert constant == pytest.approx(one_bit, rel=1e-8)


def test_mean_squared_errors_of_designs():
    # As printed, here and below.
    assert ranked_codebook(1000, 4.0, 8, codebook="S", norms="unit").mse == pytest.approx(
        438.792, abs=printed(3)
    )
    assert ranked_codebook(100, 1.0, 4, codebook="S", norms="unit").mse == pytest.approx(
        655.795, abs=printed(3)
    )
    assert simplex(50, 4.0, 16, 1, kind="G").mse == pytest.approx(25.3481, abs=printed(4))
    assert simplex(50, 4.0, 16, 1, kind="GX").mse == pytest.approx(26.5118, abs=printed(4))
    # A subspace of 10 of 50 dimensions, rotated uniformly: the formula with mean_norm(50), which is no power of two.
    table = rank_table(codewords=16, top=1, epsilon=4.0)
    inside = Codebook(kind="G", codewords=16, size=10, subspace=None, beacon="")
    first, _, total = (value / 2**32 for value in inside.moments(table.rows()[0]))
    squared = order_statistics.mean_norm(50) ** 2 / order_statistics.mean_norm(10) ** 2
    assert squared * total / first**2 - 1 == pytest.approx(
        30.6048, abs=1e-4
    )  # four printed decimals


# The integers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("codewords", "top", "epsilon", "low", "high", "raised"), UNIT_TABLES)
def test_integers_of_a_table(codewords, top, epsilon, low, high, raised):
    table = rank_table(codewords=codewords, top=top, epsilon=epsilon)
    assert (table.low, table.high, table.raised) == (low, high, raised)
    # A unit of the rarest rank's weight, which has 2^18 or more of them.
    assert 0 <= epsilon - math.log(table.ratio) < 4e-6


@judges("vectors.ranked_design.ranked_codebook", "vectors.ranked.RankedCodebook.epsilon")
@given(
    codewords=st.integers(2, 2000),
    share=st.floats(0, 1),
    epsilon=st.floats(1e-3, 12),
    null=st.booleans(),
)
def test_tables_keep_to_epsilon_and_to_the_rules(codewords, share, epsilon, null):
    top = max(1, round(share * (codewords // 2)))
    try:
        table = rank_table(codewords=codewords, top=top, epsilon=epsilon, null=null)
    except InfeasibleError:
        assert null or codewords * math.exp(epsilon) > 2**20
        return
    assert (table.rows().sum(axis=1) == 2**32).all()
    assert table.ratio <= Fraction(math.exp(epsilon) * (1 + 1e-15))
    assert table.ratio == Fraction(*loss_of(table.rows()))


def loss_of(rows):
    """The largest ratio over opposite orders and both rows, by definition."""
    ranked = rows[0]
    count = ranked.size - (rows.shape[0] > 1)
    codes = np.concatenate([row[:count] for row in rows])
    best = Fraction(int(codes.max()), int(codes.min()))
    if rows.shape[0] > 1:
        null = rows[:, -1]
        best = max(best, Fraction(int(null.max()), int(null.min())))
    return best.numerator, best.denominator


@judges("vectors.rank_table.rank_table")
@pytest.mark.parametrize("codewords", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0, 9.0])
@pytest.mark.parametrize("null", [False, True])
def test_exact_certificate_over_all_orders(codewords, epsilon, null):
    for top in range(1, codewords // 2 + 1):
        table = rank_table(codewords=codewords, top=top, epsilon=epsilon, null=null)
        rows = table.rows()
        orders = twin.all_orders(rows[0][:codewords].tolist(), rows[0][codewords:].tolist())
        everything = np.vstack([orders, rows[1:]])
        assert twin.worst_ratio(everything) == table.ratio
        # The product's own exact certificate of a table with M! (+ 1) rows, to the last digit.
        worst = loss.worst_ratio(everything)
        assert Fraction(worst.numerator, worst.denominator) == table.ratio
        # ... and two opposite orders (with the zero vector's row) lose as much at every epsilon, in both directions.
        few, all_pairs = table.dominating.weights, everything
        if everything.shape[0] <= 121:
            for at in np.linspace(0, epsilon, 7):
                assert loss.delta(few, at) == pytest.approx(
                    loss.delta(all_pairs, at), rel=FEW, abs=UNIT
                )
        assert table.dominating.epsilon == pytest.approx(
            float(loss.pure_epsilon(everything)), rel=FEW
        )


@pytest.mark.parametrize("codewords", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("null", [False, True])
def test_the_kernel_finds_the_same_epsilon_in_the_table_over_all_orders(codewords, null):
    """All M! rows (and the zero vector's) as an ordinary table: another rule of the kernel."""
    for epsilon in (0.5, 2.0, 8.0):
        table = rank_table(
            codewords=codewords, top=max(1, codewords // 3), epsilon=epsilon, null=null
        )
        rows = table.rows()
        orders = twin.all_orders(rows[0][:codewords].tolist(), rows[0][codewords:].tolist())
        everything = np.vstack([orders, rows[1:]]).astype(np.int64)
        assert len(orders) == math.factorial(codewords)
        size, levels = everything.shape
        whole = Mechanism(
            knots=np.arange(size, dtype=float),
            levels=np.arange(levels, dtype=float),
            weights=everything,
        )
        claim, proof = privacy.prove(whole, delta=0.0)
        assert claim.certified
        found = claim.checked
        exact = Fraction(table.ratio)
        # The logarithm here errs by some UNIT; the claim states it rounded up to nine digits.
        assert math.log(exact) * (1 - 1e-15) <= found.epsilon <= math.log(exact) * (1 + 2e-8)
        below = {
            **found.statement,
            "epsilon": str(Fraction(math.log(exact)) * (1 - Fraction(1, 10**9))),
        }
        smaller = kernel.ExactClaim(release=found.release, statement=below)
        with pytest.raises(kernel.Refused, match="epsilon is too small"):
            kernel.check(smaller, {**proof, "claim_sha256": smaller.sha256})


def test_tables_that_break_a_rule_are_refused():
    good = rank_table(codewords=4, top=1, epsilon=1.0)
    for wrong in [
        {"top": 0}, {"top": 4}, {"low": 0}, {"high": good.low - 1}, {"raised": -1}, {"raised": 4},
        {"high": good.high + 1}, {"null": (1, 2)}, {"null": (0, 0)},
    ]:  # fmt: skip
        with pytest.raises(ParameterError, match="table="):
            dataclasses.replace(good, **wrong)
    with_null = rank_table(codewords=4, top=1, epsilon=1.0, null=True)
    small, large = with_null.null or (0, 0)
    for null in [(small, large + 1), (small - 1, large), (large, small), None]:
        with pytest.raises(ParameterError, match="table="):
            dataclasses.replace(with_null, null=null)
    # Three of four on top and two raised: the sum holds with a negative number of low places.
    with pytest.raises(ParameterError, match="not an integer from 0 to 1"):
        RankTable(codewords=4, top=3, high=2**30, raised=2, low=2**30 - 2)
    with pytest.raises(ParameterError, match="top"):
        rank_table(codewords=4, top=3, epsilon=0.5)


# The file ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "scheme",
    [
        ranked_codebook(1000, 4.0, 8), ranked_codebook(7, 1.0, 3), ranked_codebook(5000, 2.0, 6, clip_norm=0.1),
        ranked_codebook(300, 16.0, 20, beacon="poll of 3 May"), ranked_codebook(9, 3.0, 4, codebook="G"),
    ],
)  # fmt: skip
def test_files_come_back_and_are_verified(scheme, tmp_path):
    scheme.save(tmp_path / "ranks.json")
    again = RankedCodebook.load(tmp_path / "ranks.json")
    assert again.to_json() == scheme.to_json()
    report = privacy.verify(tmp_path / "ranks.json")
    assert report.valid, report.problems
    assert report.epsilon_upper == scheme.epsilon
    assert report.sha256 == scheme.sha256
    exact = scheme.table.ratio**scheme.indices
    assert scheme.ratio == exact
    assert math.log(exact) == pytest.approx(scheme.epsilon, rel=FEW)
    with pytest.raises(FileFormatError, match="ranked codebook"):
        Mechanism.load(tmp_path / "ranks.json")


def test_every_edit_of_a_file_is_seen(tmp_path):
    scheme = ranked_codebook(100, 4.0, 8)
    document = json.loads(scheme.to_json())
    edits = [
        (key, field, value)
        for key, field, value in [
            ("table", "w_hi", document["table"]["w_hi"] + 1), ("table", "w_lo", document["table"]["w_lo"] + 1),
            ("table", "k", 16), ("table", "r", 0), ("table", "null", None), ("table", "T", 2**33),
            ("table", "M", 255), ("codebook", "kind", "S"), ("codebook", "clip_norm", "2.0"),
            ("codebook", "beacon", "x"), ("codebook", "stream", 2), ("codebook", "norms", "slack"),
            ("codebook", "dimension", 99), ("certificate", "epsilon", 3.9), ("certificate", "epsilon", "4"),
            ("certificate", "numerator", 1), ("certificate", "indices", 2), ("certificate", "sha256", "0"),
            ("certificate", "unit", "record"), ("certificate", "neighboring", "add_or_remove_one"),
        ]
    ]  # fmt: skip
    path = tmp_path / "edited.json"
    for key, field, value in edits:
        edited = json.loads(scheme.to_json())
        edited[key][field] = value
        path.write_text(json.dumps(edited))
        assert not privacy.verify(path).valid, (key, field)
        with pytest.raises(FileFormatError):
            RankedCodebook.from_json(json.dumps(edited))
    for key, value in [
        ("seed_rule", "clients choose"),
        ("indices", 2),
        ("indices", True),
        ("name", 1),
        ("table", []),
    ]:
        path.write_text(json.dumps({**document, key: value}))
        assert not privacy.verify(path).valid, key
    path.write_text(json.dumps({**document, "extra": 1}))
    assert not privacy.verify(path).valid


@judges("vectors.ranked.RankedCodebook.claim")
def test_claims_of_many_rounds():
    scheme = ranked_codebook(100, 1.0, 6)
    assert scheme.claim().epsilon == scheme.epsilon <= 1.0
    assert scheme.claim(rounds=10).epsilon == pytest.approx(10 * scheme.epsilon, rel=FEW)
    many = scheme.claim(rounds=200, delta=1e-6)
    assert 0 < many.epsilon < 0.75 * 200 * scheme.epsilon
    assert many.sha256 == scheme.sha256
    two = ranked_codebook(100, 16.0)
    assert two.indices == 2
    assert two.claim().epsilon == two.epsilon <= 16.0


@judges("vectors.ranked.RankedCodebook.prove")
def test_the_kernel_certifies_claims_and_refuses_smaller_ones():
    for scheme, rounds in [
        (ranked_codebook(100, 4.0, 8), 1),
        (ranked_codebook(100, 1.0, 6), 7),
        (KINDS[-1], 2),
    ]:
        outcome = scheme.prove(rounds=rounds)
        assert outcome.claim.certified
        # Rounded up, as above.
        assert (
            rounds * scheme.epsilon <= outcome.claim.epsilon <= rounds * scheme.epsilon * (1 + 2e-8)
        )
        claim, proof = kernel.read_claim(outcome.text)
        assert kernel.check(claim, proof).certified
        less = {**claim.statement, "epsilon": str(claim.epsilon * (1 - Fraction(1, 10**7)))}
        smaller = kernel.ExactClaim(release=claim.release, statement=less)
        with pytest.raises(kernel.Refused, match="epsilon is too small"):
            kernel.check(smaller, {**proof, "claim_sha256": smaller.sha256})


def test_no_change_of_a_proof_shows_less_than_the_null_output_costs():
    outcome = ranked_codebook(100, 4.0, 8).prove()
    less = {**outcome.claim.statement, "epsilon": str(outcome.claim.epsilon * Fraction(9, 10))}
    false = kernel.ExactClaim(release=outcome.claim.release, statement=less)
    tried = 0
    for path, forged in forgeries(outcome.proof, skip=["claim_sha256"]):
        tried += 1
        assert not accepts(false, resealed(false, forged)), path
    assert tried > 30


# Designs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epsilon", "bits", "ratio", "more"),
    [
        (1.0, 4, 1.05, {}), (2.0, 5, 1.05, {}), (4.0, 6, 1.05, {"codebook": "G", "subspace": 4096, "norms": "unit"}),
        (8.0, 10, 1.05, {}), (0.5, 8, 1.01, {}), (1.0, 8, 1.01, {}), (2.0, 8, 1.01, {}),
        (4.0, 8, 1.02, {"norms": "unit"}),
    ],
)  # fmt: skip
def test_few_bits_come_close_to_privunitg(epsilon, bits, ratio, more):
    scheme = ranked_codebook(100_000, epsilon, bits, **more)
    assert scheme.bits <= bits
    assert scheme.epsilon <= epsilon
    assert scheme.mse / scheme.optimum <= ratio


def test_bits_are_the_fewest_that_suffice():
    for epsilon, bits in [(0.5, 1), (1.0, 4), (2.0, 5), (4.0, 7), (8.0, 10)]:
        scheme = ranked_codebook(100_000, epsilon)
        assert scheme.bits == bits
        assert scheme.mse <= 1.05 * scheme.optimum
        assert bits == 1 or ranked_codebook(100_000, epsilon, bits - 1).mse > 1.05 * scheme.optimum
    # Beyond epsilon 10 one index would need too many codewords: two of half the epsilon each.
    assert ranked_codebook(100_000, 16.0).indices == 2


def test_the_number_on_top_is_the_best_of_all():
    for dimension, epsilon, codewords in [(50, 1.0, 16), (50, 0.5, 32), (50, 6.0, 32)]:
        best = min(
            simplex(dimension, epsilon, codewords, top).mse for top in range(1, codewords // 2 + 1)
        )
        found = ranked_codebook(
            dimension, epsilon, codewords.bit_length() - 1, codebook="S", norms="unit"
        )
        assert found.mse <= best * (1 + FEW)


def test_more_codewords_of_a_simplex_can_be_worse_and_are_not_chosen():
    two, four = (simplex(1000, 0.5, codewords, 1).mse for codewords in (2, 4))
    assert four > 1.08 * two
    assert ranked_codebook(1000, 0.5, 2, codebook="S", norms="unit").mse <= two


def test_arguments_are_checked():
    wrong = [
        ({"epsilon": 0.0}, "epsilon"), ({"epsilon": math.nan}, "epsilon"), ({"bits": 0}, "bits"),
        ({"tolerance": 0.0}, "tolerance"), ({"codebook": "Z"}, "codebook"), ({"norms": "l1"}, "norms"),
        ({"clip_norm": 0.0}, "clip_norm"), ({"beacon": "\0"}, "beacon"), ({"dimension": 0}, "dimension"),
    ]  # fmt: skip
    for arguments, name in wrong:
        with pytest.raises(ParameterError, match=name):
            ranked_codebook(**{"dimension": 10, "epsilon": 1.0, "bits": 4, **arguments})
    with pytest.raises(ParameterError, match="codewords"):
        simplex(3, 1.0, 5, 1)
    with pytest.raises(ParameterError, match="even"):
        simplex(30, 1.0, 5, 1, kind="GX")
    with pytest.raises(ParameterError, match="subspace"):
        simplex(30, 1.0, 4, 1, kind="GX", subspace=17)


# Reports -------------------------------------------------------------------------------------------------------

KINDS = [
    ranked_codebook(6, 2.0, 3, codebook="S", norms="slack"),
    ranked_codebook(6, 4.0, 3, codebook="X", norms="null"),
    ranked_codebook(9, 1.0, 4, codebook="G", norms="unit", beacon="b"),
    ranked_codebook(9, 5.0, 5, codebook="GX", norms="null"),
    ranked_codebook(40, 5.0, 5, codebook="GX", norms="null", subspace=10),
    ranked_codebook(31, 1.0, 4, codebook="G", norms="slack", subspace=16, clip_norm=3.0),
    ranked_codebook(40, 16.0, 12, codebook="GX", subspace=10),
]


@pytest.mark.parametrize("scheme", KINDS, ids=lambda one: f"{one.kind}-{one.norms}-{one.subspace}")
def test_reports_and_estimates_are_those_of_dense_codewords(scheme):
    rng = np.random.default_rng(2)
    for seed in (0, 5, 7 << 32, 2**64 - 1):
        vector = rng.normal(size=scheme.dimension) * scheme.clip_norm * rng.uniform(0, 0.4)
        norm = min(1.0, np.linalg.norm(vector) / scheme.clip_norm)
        direction = vector / np.linalg.norm(vector)
        lifted = (
            direction
            if scheme.norms != "slack"
            else np.append(norm * direction, math.sqrt(1 - norm**2))
        )
        words = twin_words(11, scheme.indices)
        code, estimate = 0, np.zeros(scheme.dimension)
        for place, word in enumerate(words):
            rows = scheme.table.rows()
            codewords = twin.codewords(scheme, seed, place)
            order = [
                *np.argsort(-(codewords @ lifted), kind="stable").tolist(),
                scheme.table.codewords,
            ]
            zero = scheme.norms == "null" and word >> 32 >= round(norm * 2**32)
            edge, rank = 0, -1
            while edge <= word & 0xFFFFFFFF:
                rank += 1
                edge += int(rows[int(zero)][rank])
            code = code * scheme.table.outputs + order[rank]
            if order[rank] < scheme.table.codewords:
                estimate += codewords[order[rank]][: scheme.dimension]
        assert scheme.encode(vector, seed, rng=11) == code
        assert scheme.decode(code, seed) == pytest.approx(
            estimate * scheme.scale * scheme.clip_norm / scheme.indices, abs=MANY * scheme.clip_norm
        )


def twin_words(seed, count):
    from mezzotint.core.sampler import Keystream, key_from

    words = np.empty(count + count % 2, dtype=np.uint64)
    Keystream(key_from(seed)).fill(words)
    return words[:count].tolist()


def test_batches_tensors_and_weights():
    torch = pytest.importorskip("torch")
    scheme = ranked_codebook(50, 4.0, 6)
    vectors = np.random.default_rng(3).normal(size=(8, 50)) * 0.1
    seeds = np.arange(8, dtype=np.uint64) + np.uint64(2**63)
    reports = scheme.encode(vectors, seeds, rng=4)
    assert reports.dtype == np.int64
    assert reports[0] == scheme.encode(vectors[0], int(seeds[0]), rng=4)
    assert type(scheme.encode(vectors[0], 3)) is int
    tensor = scheme.encode(torch.from_numpy(vectors), seeds, rng=4)
    assert torch.equal(tensor, torch.from_numpy(reports))
    assert (
        scheme.encode(vectors.astype(np.float32), seeds, rng=4) == reports
    ).mean() > 0.8  # ranks, up to rounding
    single = np.array(
        [scheme.decode(int(report), int(seed)) for report, seed in zip(reports, seeds, strict=True)]
    )
    weights = np.linspace(1, 2, 8)
    assert scheme.mean(reports, seeds) == pytest.approx(single.mean(axis=0), rel=FEW)
    assert scheme.mean(tensor, seeds, weights=weights) == pytest.approx(
        weights @ single / weights.sum(), rel=FEW
    )


def test_rounds_have_signs_of_their_own():
    scheme = ranked_codebook(64, 4.0, 6, norms="unit", codebook="GX", subspace=16)
    seeds = [(group << 32) + slot for group in (0, 3) for slot in range(3)]
    reports = scheme.encode(np.eye(64)[:6], seeds)
    single = [scheme.decode(int(report), seed) for report, seed in zip(reports, seeds, strict=True)]
    assert scheme.mean(reports, seeds) == pytest.approx(np.mean(single, axis=0), rel=FEW)


def test_refusals_say_nothing_of_the_vector():
    scheme = ranked_codebook(4, 1.0, 2)
    wrong = [
        (np.zeros(3), 0), (np.zeros((2, 3)), [0, 1]), (np.zeros((1, 2, 4)), [0]), (np.array(["a"] * 4), 0),
        (np.zeros(4), -1), (np.zeros(4), 2**64), (np.zeros(4), 0.5), (np.zeros((2, 4)), [1, 1]),
        (np.zeros((2, 4)), [1]), (np.zeros(4), None),
    ]  # fmt: skip
    for vectors, seed in wrong:
        with pytest.raises(ParameterError):
            scheme.encode(vectors, seed)
    # Neither NaN nor overflow changes what is done: it counts as 0, or is clipped.
    for vector in (
        [np.nan, 0, 0, 0],
        [np.inf, -np.inf, 0, 1e308],
        [1e308] * 4,
        [5e-324] * 4,
        [0, 0, 0, 0],
    ):
        assert 0 <= scheme.encode(np.array(vector, dtype=float), 1) < scheme.table.outputs
    assert scheme.encode(np.array([np.nan, 0.5, 0, 0]), 9, rng=1) == scheme.encode(
        np.array([0, 0.5, 0, 0]), 9, rng=1
    )
    for reports, seeds, weights in [
        ([4], [0], None),
        ([-1], [0], None),
        ([], [], None),
        ([0, 1], [1], None),
        ([0], [0], [0.0]),
    ]:
        with pytest.raises(ParameterError):
            scheme.mean(reports, seeds, weights=weights)


@pytest.mark.parametrize("norms", ["unit", "slack", "null"])
@pytest.mark.parametrize("clip_norm", [5e-324, 1e-300, 1.0, 1e308])
def test_no_vector_and_no_clip_norm_leads_to_an_error(norms, clip_norm):
    scheme = ranked_codebook(3, 4.0, 3, norms=norms, clip_norm=clip_norm)
    values = [0.0, -0.0, 5e-324, 1e-310, 1.0, -1e308, 1.7e308, np.inf, -np.inf, np.nan]
    for i, first in enumerate(values):
        for second in values[i:]:
            report = scheme.encode(np.array([first, second, 0.0]), i)
            assert 0 <= report < scheme.table.outputs
    assert 0 <= scheme.encode(np.array([1, 2, 3]), 0) < scheme.table.outputs
    assert 0 <= scheme.encode(np.array([1, 2, 3], dtype=np.float16), 0) < scheme.table.outputs


def test_reports_follow_the_table_for_every_input():
    # 6,000 reports of two vectors under one seed: every rank's count within 5 standard deviations (8 tests: 5e-6).
    scheme = ranked_codebook(3, 1.0, 2, codebook="X", norms="unit")
    codewords = twin.codewords(scheme, 77)
    for vector in (np.array([1.0, 2.0, -1.0]), np.array([0.0, 0.0, 1.0])):
        order = np.argsort(-(codewords @ vector), kind="stable")
        rng = np.random.default_rng(8)
        codes = [scheme.encode(vector, 77, rng=rng) for _ in range(6000)]
        counts = np.bincount(codes, minlength=4)[order]
        expected = scheme.table.rows()[0] / 2**32 * 6000
        assert (np.abs(counts - expected) < 5 * np.sqrt(expected)).all()
