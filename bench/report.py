"""The report as a plain table for people and as JSON lines for scripts."""

import json
from collections.abc import Iterator, Sequence

from row import Against, Row

HEADINGS = ("what", "unit", "floor", "ours", "ratio", "goal", "verdict")


def table(rows: Sequence[Row]) -> str:
    """Columns as wide as their widest cell; numbers to the right."""
    lines = [HEADINGS, *(cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    return "\n".join(laid_out(line, widths) for line in lines)


def laid_out(line: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        cell.ljust(width) if column in {0, 1, 5, 6} else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(line, widths, strict=True))
    ]
    return "  ".join(padded).rstrip()


def cells(row: Row) -> tuple[str, ...]:
    return (
        row.what,
        row.unit,
        number(row.floor),
        number(row.ours),
        number(row.ratio),
        goal(row),
        "  ".join(part for part in (row.verdict, row.note) if part),
    )


def goal(row: Row) -> str:
    if row.goal is None:
        return ""
    limit = f"{row.goal.limit:g}"
    match row.goal.against:
        case Against.RATIO:
            return f"x {limit}"
        case Against.EXTRA:
            return f"+ {limit} {row.unit}"
        case Against.VALUE:
            return f"{limit} {row.unit}".rstrip()


def number(value: float | None) -> str:
    """Three significant digits, thousands apart."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.3g}"


def json_lines(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        yield json.dumps(
            {
                "what": row.what,
                "unit": row.unit,
                "floor": row.floor,
                "ours": row.ours,
                "ratio": row.ratio,
                "goal": None if row.goal is None else {"limit": row.goal.limit, "against": row.goal.against},
                "reached": row.reached,
                "verdict": row.verdict,
                "note": row.note,
                "repetitions": len(row.samples),
            }
        )
