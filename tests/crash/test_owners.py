"""One run, several processes that want it: one goes on, the others touch nothing."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from rig import env

RACING = Path(__file__).with_name("racing.py")


def met(*arguments: object) -> dict[str, Any]:
    command = [sys.executable, "-P", str(RACING), *map(str, arguments)]
    done = subprocess.run(command, env=env(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_of_eight_resumers_of_one_run_one_goes_on_and_seven_are_told_who_holds_it(memory: Path) -> None:
    said = met("race", memory, 8)
    assert sorted(each.split(":")[0] for each in said["met"]) == ["completed", *["held"] * 7]
    assert said["acts"] == said["all"] == 1


def test_an_owner_that_slept_past_its_lease_writes_nothing_and_enters_no_body(memory: Path) -> None:
    said = met("stop", memory)
    heir, owner = said["met"]
    assert heir.startswith("completed")
    assert owner.startswith("held")
    assert said["acts"] == 1
    assert said["entered"] == 0
    assert not said["written"]
