"""Federated learning with few-bit private updates, added up by secure aggregation. Needs the extra `flower`."""
