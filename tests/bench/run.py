"""`make bench`: every speed promise, measured beside a bare agent in the same run.

make bench                      all of it, in less than four minutes
make bench ARGS="--only start --only chunks"
make bench ARGS=--json
"""

import argparse
import sys
import time

from lab import Row
import msgspec
from rich.console import Console
from rich.table import Table
from rows import ROWS, measure


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument(
        "--only", action="append", choices=list(ROWS), help="measure only this group (repeatable)"
    )
    options = parser.parse_args()
    progress = Console(stderr=True)
    began = time.monotonic()
    with progress.status("starting") as status:
        rows = list(measure(options.only or list(ROWS), lambda name: status.update(name)))
    if options.json:
        sys.stdout.write(msgspec.json.encode(rows).decode() + "\n")
    else:
        show(rows, time.monotonic() - began)
    return 0 if all(row.met for row in rows) else 1


def show(rows: list[Row], took_s: float) -> None:
    table = Table(title="dsh-acp beside a bare agent (medians unless said otherwise)")
    for name, justify in (("what", "left"), ("dsh-acp", "right"), ("floor", "right")):
        table.add_column(name, justify=justify)
    for name in ("reach", "", "note"):
        table.add_column(name)
    for row in rows:
        mark = "[green]met[/]" if row.met else "[red]missed[/]"
        values = (figure(row.real, row.unit), figure(row.floor, row.unit))
        table.add_row(row.what, *values, row.reach, mark, row.note)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    console.print(table)
    missed = sum(not row.met for row in rows)
    verdict = f"{missed} of {len(rows)} missed" if missed else f"all {len(rows)} met"
    console.print(f"{verdict}, in {took_s:.0f} s")


def figure(value: float | None, unit: str) -> str:
    if value is None or value != value:
        return "–"
    digits = 0 if value >= 1000 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f} {unit}"


if __name__ == "__main__":
    sys.exit(main())
