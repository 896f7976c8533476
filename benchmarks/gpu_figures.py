"""Figures 4 to 6 of the RQM paper on a GPU: its network, 40 clients a round, 2,000 rounds, every method, three seeds.

`benchmarks/gpu.py --all` runs it. FedSGD: each of a round's 40 clients sends the gradient of 20 of its images, every
coordinate clipped to [-c, c] and reported in 4 bits by the method; the server moves by its rate times the mean. All
clients of a round are computed together: images in one batch, gradients of the weights client by client. The reports
are drawn by `Mechanism.privatize` on the device. Participants, batches and the initial network depend on the seed
alone, so that methods can be compared pair by pair. The draws themselves are private: a second run differs by them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from mezzotint import Mechanism, families

CLIENTS, IMAGES, ROUNDS, SEEDS = 40, 20, 2_000, 3
CLASSES = 62
CLIP = 2.9731e-5
LEVELS, TRIALS = 16, 15
PAIRS = {
    0.15: ((2.33, 0.42), (4.0, 0.5), (1.0, 0.23)),
    0.25: ((1.0, 0.42), (2.0, 0.57), (0.66, 0.33)),
    0.35: ((0.429, 0.49), (1.0, 0.65), (0.25, 0.37)),
}
"""theta of PBM -> the paper's (Delta / c, q) of RQM."""
RATES = (3.0, 10.0, 30.0, 100.0)
RATE_ROUNDS, RATE_SEED = 300, 100
"""The server's rate is the one of `RATES` with which noise-free training loses least after so many rounds."""
EVALUATIONS = 20


@dataclass(frozen=True, kw_only=True)
class Images:
    """FEMNIST on a device.

    Arguments:
        x: (N, 1, 28, 28) float32 of the training images, in [0, 1].
        y: (N,) int64 labels.
        writers: indices of each client's images.
        test_x, test_y: images and labels of the evaluation.
    """

    x: torch.Tensor
    y: torch.Tensor
    writers: tuple[np.ndarray, ...]
    test_x: torch.Tensor
    test_y: torch.Tensor


def load(path: Path, device: torch.device) -> Images:
    with np.load(path) as file:
        x, y, writer, split = (file[name] for name in ("x", "y", "writer", "split"))
    pixels = torch.from_numpy((255 - x).astype(np.float32) / 255)[:, None].to(device)
    labels = torch.from_numpy(y.astype(np.int64)).to(device)
    training, test = np.flatnonzero(split == 0), np.flatnonzero(split == 1)
    writers = tuple(np.flatnonzero(writer[training] == one) for one in np.unique(writer[training]))
    return Images(
        x=pixels[training], y=labels[training], writers=writers,
        test_x=pixels[test], test_y=labels[test],
    )  # fmt: skip


def batches(images: Images, seed: int, rounds: int) -> torch.Tensor:
    """(rounds, CLIENTS, IMAGES) indices: the round's clients, and the images each of them uses."""
    generator = np.random.default_rng(seed)
    chosen = np.empty((rounds, CLIENTS, IMAGES), dtype=np.int64)
    for number in range(rounds):
        clients = generator.permutation(len(images.writers))[:CLIENTS]
        for place, client in enumerate(clients):
            own = images.writers[client]
            chosen[number, place] = generator.choice(own, IMAGES, replace=own.size < IMAGES)
    return torch.from_numpy(chosen).to(images.x.device)


# The network of `mezzotint.papers.simulation.network("cnn", ...)`: two convolutions, pooling, two dense layers.
SHAPES = (
    (32, 1, 3, 3),
    (32,),
    (64, 32, 3, 3),
    (64,),
    (128, 9216),
    (128,),
    (CLASSES, 128),
    (CLASSES,),
)
SIZES = tuple(int(np.prod(shape)) for shape in SHAPES)


def initial(seed: int, device: torch.device) -> torch.Tensor:
    """The flat weights, drawn as torch's layers draw them."""
    from torch import nn

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = (
            nn.Conv2d(1, 32, 3),
            nn.Conv2d(32, 64, 3),
            nn.Linear(9216, 128),
            nn.Linear(128, CLASSES),
        )
        weights = [weight.detach().reshape(-1) for layer in layers for weight in layer.parameters()]
    return torch.cat(weights).to(device)


def layers_of(flat: torch.Tensor) -> list[torch.Tensor]:
    pieces = torch.split(flat, SIZES)
    return [piece.view(shape) for piece, shape in zip(pieces, SHAPES, strict=True)]


def scores(weights: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    first, first_bias, second, second_bias, dense, dense_bias, last, last_bias = weights
    hidden = F.relu(F.conv2d(x, first, first_bias))
    hidden = F.relu(F.conv2d(hidden, second, second_bias))
    hidden = F.max_pool2d(hidden, 2).flatten(1)
    hidden = F.relu(F.linear(hidden, dense, dense_bias))
    return F.linear(hidden, last, last_bias)


def client_gradients(flat: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """(clients, weights) gradients of each client's mean loss; x is (clients, images, 1, 28, 28).

    The backward pass is shared, since all clients have the same weights; what each layer was fed and the gradient at
    its output give every client's gradient of its weights.
    """
    clients, images = y.shape
    first, first_bias, second, second_bias, dense, dense_bias, last, last_bias = layers_of(flat)
    pixels = x.flatten(0, 1)
    outputs: list[torch.Tensor] = []

    def watched(output: torch.Tensor) -> torch.Tensor:
        output.requires_grad_() if output.is_leaf else None
        outputs.append(output)
        return output

    with torch.enable_grad():
        out_1 = watched(F.conv2d(pixels, first, first_bias).requires_grad_())
        in_2 = F.relu(out_1)
        out_2 = watched(F.conv2d(in_2, second, second_bias))
        in_3 = F.max_pool2d(F.relu(out_2), 2).flatten(1)
        out_3 = watched(F.linear(in_3, dense, dense_bias))
        in_4 = F.relu(out_3)
        out_4 = watched(F.linear(in_4, last, last_bias))
        # A mean over each client's images, summed over clients.
        loss = F.cross_entropy(out_4, y.flatten(), reduction="sum") / images
        back_1, back_2, back_3, back_4 = torch.autograd.grad(loss, outputs)

    def by_client(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().unflatten(0, (clients, images))

    def convolution(fed: torch.Tensor, back: torch.Tensor) -> list[torch.Tensor]:
        # Views of every 3 x 3 patch: F.unfold would launch a kernel for each image.
        patches = by_client(fed).unfold(3, 3, 1).unfold(4, 3, 1)
        patches = patches.permute(0, 1, 3, 4, 2, 5, 6).flatten(4).flatten(1, 3)
        at_outputs = by_client(back).transpose(1, 2).flatten(2)
        weights = torch.bmm(at_outputs, patches)
        return [weights.flatten(1), at_outputs.sum(dim=2)]

    def linear(fed: torch.Tensor, back: torch.Tensor) -> list[torch.Tensor]:
        at_outputs = by_client(back)
        weights = torch.bmm(at_outputs.transpose(1, 2), by_client(fed))
        return [weights.flatten(1), at_outputs.sum(dim=1)]

    pieces = [
        *convolution(pixels, back_1), *convolution(in_2, back_2),
        *linear(in_3, back_3), *linear(in_4, back_4),
    ]  # fmt: skip
    return torch.cat(pieces, dim=1)


def mean_report(mechanism: Mechanism | None, gradients: torch.Tensor) -> torch.Tensor:
    """The mean of the clients' decoded reports; without a mechanism, of their clipped gradients."""
    clipped = gradients.clamp(-CLIP, CLIP)
    if mechanism is None:
        return clipped.mean(dim=0)
    codes = mechanism.privatize(clipped)
    lowest, highest = mechanism.levels[0], mechanism.levels[-1]
    step = float(highest - lowest) / (mechanism.levels.size - 1)
    # Levels of RQM and PBM are even: a sum of codes is a sum of levels.
    return codes.sum(dim=0, dtype=torch.int32) * (step / len(codes)) + float(lowest)


def evaluate(flat: torch.Tensor, images: Images) -> tuple[float, float]:
    weights = layers_of(flat)
    found = torch.cat([scores(weights, part) for part in images.test_x.split(1024)])
    loss = F.cross_entropy(found, images.test_y)
    accuracy = (found.argmax(dim=1) == images.test_y).double().mean()
    return float(loss), float(accuracy)


@torch.no_grad()
def train(
    mechanism: Mechanism | None, images: Images, *, seed: int, rounds: int, rate: float
) -> list[tuple[int, float, float]]:
    """(round, test loss, test accuracy), `EVALUATIONS` times."""
    flat = initial(seed, images.x.device)
    chosen = batches(images, seed, rounds)
    every = max(1, rounds // EVALUATIONS)
    history: list[tuple[int, float, float]] = []
    for number in range(rounds):
        indices = chosen[number]
        gradients = client_gradients(flat, images.x[indices], images.y[indices])
        flat = flat - rate * mean_report(mechanism, gradients)
        if (number + 1) % every == 0 or number + 1 == rounds:
            history.append((number + 1, *evaluate(flat, images)))
    return history


def methods() -> dict[str, Mechanism | None]:
    reach = {"lower": -CLIP, "upper": CLIP}
    mechanisms: dict[str, Mechanism | None] = {"noise-free clipped": None}
    for theta, pairs in PAIRS.items():
        name = f"PBM theta={theta:g}"
        mechanisms[name] = families.pbm(**reach, trials=TRIALS, theta=theta)
        for extension, q in pairs:
            name = f"RQM Delta={extension:g}c q={q:g} (theta={theta:g})"
            mechanisms[name] = families.rqm(**reach, levels=LEVELS, extension=extension * CLIP, q=q)
    return mechanisms


def run_all(
    path: Path,
    device: torch.device,
    deadline: float,
    seeds: tuple[int, ...] = tuple(range(SEEDS)),
    rate: float | None = None,
) -> dict[str, Any]:
    """Every method, seed by seed, until the deadline; a run that would not end in time is not begun.

    Arguments:
        seeds: those to run: what an earlier call has run need not be run again.
        rate: the server's, as an earlier call chose it; None to choose it by noise-free training.
    """
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    images = load(path, device)
    rounds = ROUNDS if device.type == "cuda" else 2
    rate_rounds = RATE_ROUNDS if device.type == "cuda" else 2
    chosen: dict[float, float] = {}
    if rate is None:
        for candidate in RATES:
            *_, (_, loss, _) = train(
                None, images, seed=RATE_SEED, rounds=rate_rounds, rate=candidate
            )
            chosen[candidate] = loss
        rate = min(chosen, key=lambda candidate: chosen[candidate])
    runs: list[dict[str, Any]] = []
    longest = 0.0
    for seed in seeds:
        for name, mechanism in methods().items():
            begin = time.monotonic()
            if begin + 1.1 * longest > deadline:
                continue
            history = train(mechanism, images, seed=seed, rounds=rounds, rate=rate)
            taken = time.monotonic() - begin
            longest = max(longest, taken)
            print(f"   {name}, seed {seed}: {history[-1]}, {taken:.1f} s", flush=True)
            runs.append({"method": name, "seed": seed, "seconds": taken, "history": history})
    last: dict[str, list[tuple[float, float]]] = {}
    for run in runs:
        _, loss, accuracy = run["history"][-1]
        last.setdefault(run["method"], []).append((round(loss, 4), round(accuracy, 4)))
    return {
        "clients": len(images.writers), "clients a round": CLIENTS, "images a client": IMAGES,
        "rounds": rounds, "clip": CLIP, "rate": rate, "losses by rate": chosen, "last": last, "runs": runs,
    }  # fmt: skip
