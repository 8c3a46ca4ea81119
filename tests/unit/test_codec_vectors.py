"""The bytes and digests of today are those of `vectors/values.json`, which `design/format.md` refers to."""

import json
from pathlib import Path

import pytest

from savepoint._codec import digest, dumps, loads
from savepoint._log import Log
from savepoint._portable import same
from savepoint._types import Types

HERE = Path(__file__).parent / "vectors"
NAMES: dict[str, object] = {}
exec((HERE / "names.py").read_text(), NAMES)
VECTORS = json.loads((HERE / "values.json").read_text())
TYPES = Types([NAMES["Point"], NAMES["Colour"], NAMES["Open"]])


@pytest.mark.parametrize("case", VECTORS["values"], ids=lambda case: case["python"])
def test_values(case):
    value = eval(case["python"], NAMES)
    assert dumps(value).hex() == case["bytes"]
    assert digest(value).hex() == case["digest"]
    assert same(loads(bytes.fromhex(case["bytes"]), types=TYPES), value)


@pytest.mark.parametrize("case", VECTORS["logs"], ids=lambda case: case["python"])
def test_logs(case):
    assert Log(eval(case["python"], NAMES)).root.hex() == case["root"]
