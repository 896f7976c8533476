"""Compiled inner loops of the room: imported only when a number is first asked for, because numba is heavy.

numba's disk cache watches the file of a compiled function, not the files it calls into. An installation replaces all
files together; who edits one of these removes the folder's __pycache__ (the tests do so by themselves).
"""
