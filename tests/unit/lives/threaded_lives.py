"""A module that a fork server must not serve: importing it starts a thread."""

import threading
import time
from typing import Any

threading.Thread(target=time.sleep, args=(60,), daemon=True, name="sleeper").start()


def live(request: dict[str, Any]) -> dict[str, Any]:
    return {}
