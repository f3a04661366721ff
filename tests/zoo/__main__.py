"""``python -m zoo``: try all nets and write the page; with names, try these and print what is seen.

``--without-held-out`` leaves the ten out; ``--first-look`` tries them for the first time, and keeps what is seen.
"""

import json
import sys

from zoo.names import HELD_OUT
from zoo.nets import ZOO
from zoo.page import PAGE, write, write_first_look
from zoo.run import try_all
from zoo.trial import Result

OPTIONS = ("--first-look", "--without-held-out")


def main(names: list[str]) -> int:
    """Try nets; returns whether one does not hold."""
    unknown = [name for name in names if name not in ZOO and name not in OPTIONS]
    if unknown:
        print(f"no net is called {', '.join(unknown)}; there are {', '.join(ZOO)}")
        return 2
    chosen = [name for name in ZOO if name in names]
    if "--without-held-out" in names:
        chosen = [name for name in ZOO if name not in HELD_OUT]
    results = []
    for result in try_all(chosen or (HELD_OUT if "--first-look" in names else ZOO)):
        results.append(result)
        print(_line(result), flush=True)
    print(f"{sum(r.holds for r in results)} of {len(results)} hold")
    if not names or names == ["--without-held-out"]:
        write(results)
        print(f"written: {PAGE}")
    elif names == ["--first-look"]:
        write_first_look(results)
    elif len(names) == 1 and not names[0].startswith("-"):
        print(json.dumps(results[0].to_dict(), indent=1, ensure_ascii=False))
    return int(not all(r.holds for r in results))


def _line(result: Result) -> str:
    failed = [f"{check} ({result.why.get(check, '')[:150]})" for check, ok in result.passed.items() if not ok]
    numbers = " ".join(f"{k} {v:.3g}" for k, v in result.numbers.items() if "before" in k or "after" in k)
    after = ", calibrated" if result.calibrated else ""
    state = f"holds{after}" if result.holds else f"FAILS {'; '.join(failed)}"
    return f"{result.name} [{result.seconds:.1f} s] {state} | {numbers}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
