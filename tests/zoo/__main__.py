"""``python -m zoo``: try the nets whose record is of other code, those that failed first, and write the page.

With names, try these and print what is seen; ``--first-look`` tries those held out for the first time, and keeps that.
"""

import json
import sys
from typing import Any

from zoo.names import HELD_OUT
from zoo.nets import ZOO
from zoo.page import PAGE, recorded, write, write_first_look
from zoo.run import fingerprint, try_all
from zoo.trial import Result

FIRST_LOOK = "--first-look"


def main(arguments: list[str]) -> int:
    """Try nets; returns whether one does not hold."""
    unknown = [name for name in arguments if name not in ZOO and name != FIRST_LOOK]
    if unknown:
        print(f"no net is called {', '.join(unknown)}; there are {', '.join(ZOO)}")
        return 2
    if not arguments:
        return _bring_up_to_date()
    results = []
    for result in try_all(HELD_OUT if FIRST_LOOK in arguments else arguments):
        results.append(result)
        print(_line(result), flush=True)
    if FIRST_LOOK in arguments:
        write_first_look(results)
    elif len(results) == 1:
        print(json.dumps(results[0].to_dict(), indent=1, ensure_ascii=False))
    return int(not all(r.holds for r in results))


def _bring_up_to_date() -> int:
    """Write the page after every net, so that an interrupted run goes on where it stopped."""
    results: dict[str, dict[str, Any]] = recorded()
    now = fingerprint()
    names = [name for name in ZOO if results.get(name, {}).get("code") != now]
    names.sort(key=lambda name: name in results and all(results[name]["passed"].values()))
    for result in try_all(names):
        results[result.name] = result.to_dict()
        write(results)
        print(_line(result), flush=True)
    write(results)
    print(f"written: {PAGE}")
    return int(not all(all(r["passed"].values()) for r in results.values()))


def _line(result: Result) -> str:
    failed = [f"{check} ({result.why.get(check, '')[:150]})" for check, ok in result.passed.items() if not ok]
    numbers = " ".join(f"{k} {v:.3g}" for k, v in result.numbers.items() if "before" in k or "after" in k)
    after = ", calibrated" if result.calibrated else ""
    state = f"holds{after}" if result.holds else f"FAILS {'; '.join(failed)}"
    return f"{result.name} [{result.seconds:.1f} s] {state} | {numbers}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
