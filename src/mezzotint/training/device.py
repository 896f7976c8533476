"""Clipped integer sums and rounded Gaussians in plain torch, for gradients that lie on a device."""

from __future__ import annotations

from collections.abc import Sequence

from mezzotint.core import gpu
from mezzotint.training import quantized
from mezzotint.training.extra import torch
from mezzotint.training.quantized import ClippedSums
from mezzotint.vectors import rounded
from mezzotint.vectors.rounded import UNDECIDED, RoundedGaussian

Factored = tuple[torch.Tensor, torch.Tensor]
"""(n, repeat) and (n, width) float32: a record's gradient in a parameter is their outer product, flat."""


AT_ONCE = 1 << 24
"""Numbers that records' gradients are written out to at a time."""


def clipped_sum(gradients: Sequence[Factored], sums: ClippedSums) -> tuple[torch.Tensor, int]:
    """What `sums` makes of the records' gradients, on their device.

    Returns: (D,) int64 sums, and how many records were left out as their gradients are not finite.

    Guarantees: each record's integers have an L2 norm of at most `units`, as checked in exact arithmetic.
    """
    rows = [given.double().square().sum(dim=1) * back.double().square().sum(dim=1) for back, given in gradients]
    squares: torch.Tensor = torch.stack(rows).sum(dim=0)
    wanted = sums.units * quantized._ROOM / squares.sqrt().clamp(min=sums.clip_norm)
    factors = torch.where(wanted.isfinite() & squares.isfinite(), wanted, 0.0).float()
    for attempt in range(quantized._ATTEMPTS + 1):
        totals, found = _added(gradients, factors, sums)
        long = found > sums.units**2
        if not bool(long.any()):
            break
        shorter = quantized._SHORTER if attempt + 1 < quantized._ATTEMPTS else 0.0
        factors = torch.where(long, factors * shorter, factors)
    return totals, int((factors == 0).sum())


def _added(
    gradients: Sequence[Factored], factors: torch.Tensor, sums: ClippedSums
) -> tuple[torch.Tensor, torch.Tensor]:
    """(D,) int64 sums, and (n,) sums of squares of what each record has added.

    The squares are summed in 64-bit floats: exact to 2^53, and whatever is beyond is found to be too long all the same.
    """
    limit, parts = float(sums.units + 1), []
    squares = torch.zeros(len(factors), dtype=torch.float64, device=factors.device)
    for back, given in gradients:
        total = torch.zeros(back.shape[1], given.shape[1], dtype=torch.int64, device=factors.device)
        gains = back * factors[:, None]
        together = max(1, AT_ONCE // max(1, total.numel()))
        for first in range(0, len(factors), together):
            mine = slice(first, first + together)
            scaled = gains[mine, :, None] * given[mine, None, :]
            # A record with factor 0 may hold infinities, which times 0 are NaN.
            scaled = torch.where(factors[mine, None, None] > 0, scaled, 0.0).nan_to_num(-limit)
            whole = scaled.clamp(-limit, limit).trunc()
            total += whole.long().sum(dim=0)
            squares[mine] += whole.double().square().sum(dim=(1, 2))
        parts.append(total.flatten())
    return torch.cat(parts), squares


def decide(words: torch.Tensor, table: torch.Tensor, law: RoundedGaussian) -> torch.Tensor:
    """(n,) draws that (n,) int64 words lead to, UNDECIDED where they do not: `compiled.draw`, step by step."""
    bits = (words & rounded._BELOW_SIGN).double().view(torch.int64)
    cell = (bits >> rounded._SHIFT) - rounded._FIRST_CELL
    row = table[cell.clamp(min=0)]
    t = ((bits & rounded._WITHIN) | rounded._ONE).view(torch.float64) - rounded._MIDDLE
    z = row[:, -1]
    for term in range(rounded.TERMS - 2, -1, -1):
        z = z * t + row[:, term]
    spread = law.sigma * z
    raised = torch.where(words < 0, -spread, spread) + 0.5
    whole = raised.floor()
    rest = raised - whole
    decided = (cell >= 0) & (rest > law.margin) & (rest < 1 - law.margin)
    return torch.where(decided, whole.long(), UNDECIDED)


def rounded_gaussian(law: RoundedGaussian, key: bytes, size: int, device: torch.device) -> torch.Tensor:
    """(size,) int64 independent draws on a device; coordinate i takes word i of the key's ChaCha20 stream.

    The few draws that their word does not decide look closer on the CPU, at words of their own.
    """
    table = gpu.to_device(rounded.quantiles(), device)
    own, found = gpu.key_on(key, device), torch.empty(size, dtype=torch.int64, device=device)
    for begin in range(0, size, gpu.CHUNK):
        part = found[begin : begin + gpu.CHUNK]
        blocks = -(-part.numel() // gpu.WORDS_PER_BLOCK)
        halves = gpu.halves(own, begin // gpu.WORDS_PER_BLOCK, blocks)
        words = halves.contiguous().view(torch.int64).flatten()[: part.numel()]
        part.copy_(decide(words, table, law))
        places = (part == UNDECIDED).nonzero().flatten()
        closer = [
            law.closer(word & (2**64 - 1), rounded._further(key, begin + place))
            for word, place in zip(words[places].tolist(), places.tolist(), strict=True)
        ]
        part[places] = torch.tensor(closer, dtype=torch.int64, device=device)
    own.zero_()
    return found
