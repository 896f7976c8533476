"""Convolutional networks as functions of one flat vector. Needs torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from mezzotint.core import brought_by
from mezzotint.core.errors import ParameterError
from mezzotint.datasets.labelled import Features, Labels
from mezzotint.federated.tasks import Model, Vector

with brought_by("torch"):
    import torch
    from torch import nn

_EVALUATED = 2000
"""Images evaluated at a time."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Network(Model):
    """A torch module whose parameters are one vector. Images come as (n, height, width[, channels])."""

    module: nn.Module

    def initial(self, seed: int) -> Vector:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for part in self.module.modules():
                if isinstance(part, (nn.Conv2d, nn.Linear)):
                    part.reset_parameters()
        return nn.utils.parameters_to_vector(self.module.parameters()).detach().numpy().astype(np.float64)

    def _load(self, parameters: Vector) -> None:
        vector = torch.from_numpy(parameters.astype(np.float32))
        nn.utils.vector_to_parameters(vector, self.module.parameters())

    def gradient(self, parameters: Vector, x: Features, y: Labels) -> Vector:
        self._load(parameters)
        loss = nn.functional.cross_entropy(self.module(_as_images(x)), torch.from_numpy(y))
        parts = torch.autograd.grad(loss, list(self.module.parameters()))
        return torch.cat([part.reshape(-1) for part in parts]).numpy().astype(np.float64)

    def evaluate(self, parameters: Vector, x: Features, y: Labels) -> tuple[float, float]:
        self._load(parameters)
        loss, right = 0.0, 0
        with torch.no_grad():
            for start in range(0, len(y), _EVALUATED):
                labels = torch.from_numpy(y[start : start + _EVALUATED])
                scores = self.module(_as_images(x[start : start + _EVALUATED]))
                loss += float(nn.functional.cross_entropy(scores, labels, reduction="sum"))
                right += int((scores.argmax(dim=1) == labels).sum())
        return loss / len(y), right / len(y)


def _as_images(x: Features) -> torch.Tensor:
    tensor = torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))
    return tensor[:, None] if tensor.ndim == 3 else tensor.permute(0, 3, 1, 2)


def network(name: str, shape: tuple[int, ...], classes: int) -> Network:
    """A network for images of a shape (height, width[, channels]).

    "cnn": the federated EMNIST network of the literature (Reddi et al. 2021, without its dropout): two 3x3
        convolutions of 32 and 64 channels, pooling, a layer of 128, the classes; 1,206,590 parameters at 28x28, 62.
    "small-cnn": two strided 5x5 convolutions of 8 and 16 channels and the classes; 52,094 parameters there.
    """
    if len(shape) not in (2, 3):
        raise ParameterError("model", name, "needs images; use model='softmax' for rows")
    channels = 1 if len(shape) == 2 else shape[2]
    if name == "cnn":
        body: list[nn.Module] = [
            nn.Conv2d(channels, 32, 3),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
        height, width = ((side - 4) // 2 for side in shape[:2])
        head: list[nn.Module] = [nn.Flatten(), nn.Linear(64 * height * width, 128), nn.ReLU(), nn.Linear(128, classes)]
    else:
        body = [nn.Conv2d(channels, 8, 5, stride=2, padding=2), nn.ReLU()]
        body += [nn.Conv2d(8, 16, 5, stride=2, padding=2), nn.ReLU()]
        height, width = (-(-side // 4) for side in shape[:2])
        head = [nn.Flatten(), nn.Linear(16 * height * width, classes)]
    return Network(module=nn.Sequential(*body, *head))
