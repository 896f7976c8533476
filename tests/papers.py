"""Settings of the papers that several tests look at."""

from __future__ import annotations

from mezzotint.papers import rqp_formulas

DIAGNOSTIC = rqp_formulas.RQPSettings(
    noise_multiplier=1.0,
    bits=4,
    bound=0.3,
    clip_norm=0.45,
    step_size=1.0,
    batch_size=10,
    dataset_size=455,
    steps=46,
    dimension=31,
)
"""Logistic regression on Diagnostic (RQP-SGD, Table 1) at the noise of its accounting example."""
