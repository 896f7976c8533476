"""The command line, most verbs in a file each. Exit status 0 good, 1 a check failed, 2 bad input,
130 interrupted.
"""

from mezzotint.cli.application import app as app, main as main, run as run
