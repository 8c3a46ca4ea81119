"""A module whose import leaves a thread that is about to end."""

import threading
import time
from typing import Any

threading.Thread(target=time.sleep, args=(0.5,), name="ending").start()


def live(request: dict[str, Any]) -> dict[str, Any]:
    return {"threads": threading.active_count()}
