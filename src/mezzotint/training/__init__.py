"""DP-SGD with quantized gradients, and models whose weights stay quantized. The accounting half needs no torch."""

from mezzotint.training import rqp as rqp

__all__ = ["rqp"]
