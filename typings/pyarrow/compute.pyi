# Pyarrow carries no types of its own: every member is Any.

from typing import Any

def __getattr__(name: str) -> Any: ...
