"""Writes `values.json` anew. Only for a new format version: the bytes of an old one never change."""

import json
from pathlib import Path

from savepoint._codec import digest, dumps
from savepoint._log import Log

HERE = Path(__file__).parent


def main() -> None:
    file = HERE / "values.json"
    cases = json.loads(file.read_text())
    names: dict[str, object] = {}
    exec((HERE / "names.py").read_text(), names)
    for case in cases["values"]:
        value = eval(case["python"], names)
        case |= {"bytes": dumps(value).hex(), "digest": digest(value).hex()}
    for case in cases["logs"]:
        case["root"] = Log(eval(case["python"], names)).root.hex()
    file.write_text(json.dumps(cases, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
