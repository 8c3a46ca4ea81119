"""A report as JUnit XML: one test case a run, so that a build server shows each schedule by its name."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence

from ._report import NEXT, Report, Tried

_IMPOSSIBLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 has no way to write."""


def junit(report: Report) -> str:
    """The document. A rejected target is one failed case, `unkilled`."""
    failures = report.violated + len(report.rejected)
    suite = ET.Element(
        "testsuite",
        name=_clean(f"savepoint crash: {report.target}"),
        tests=str(len(report.tried) + len(report.rejected)),
        failures=str(failures),
        errors="0",
        skipped="0",
        time=f"{report.seconds:.3f}",
    )
    properties = ET.SubElement(suite, "properties")
    planned = "" if report.planned is None else str(report.planned)
    for name, value in (("kills", str(report.kills)), ("planned", planned), ("complete", str(report.complete).lower())):
        ET.SubElement(properties, "property", name=name, value=value)
    for each in report.rejected:
        case = ET.SubElement(suite, "testcase", classname="savepoint.crash", name="unkilled", time="0.000")
        _fail(case, str(each.verdict), each.what, [NEXT.get(each.verdict, "")])
    for tried in report.tried:
        _case(suite, report, tried)
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: ET.Element, report: Report, tried: Tried) -> None:
    name = _clean(tried.schedule)
    case = ET.SubElement(suite, "testcase", classname="savepoint.crash", name=name, time=f"{tried.seconds:.3f}")
    if not tried.verdict.right:
        found = [f"{each.verdict}: {each.what}" for each in tried.findings]
        where = [f"died {', then '.join(each.where)}" for each in tried.findings[:1] if any(each.where)]
        what = tried.findings[0].what if tried.findings else str(tried.verdict)
        _fail(case, str(tried.verdict), what, [*found, *where, report.reproduction(tried.schedule)])


def _fail(case: ET.Element, kind: str, message: str, body: Iterable[str]) -> None:
    failure = ET.SubElement(case, "failure", type=kind, message=_clean(message))
    failure.text = _clean("\n".join(_filled(list(body))))


def _filled(lines: Sequence[str]) -> list[str]:
    return [line for line in lines if line]


def _clean(text: str) -> str:
    return _IMPOSSIBLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
