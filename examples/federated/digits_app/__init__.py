"""Federated softmax regression on scikit-learn's digits."""
