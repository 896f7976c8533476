"""Sums of records' quantized gradients: every coordinate drawn from a table and added up in one pass."""
