"""Compiled inner loops of the room: imported only when a number is first asked for, because numba is heavy."""
