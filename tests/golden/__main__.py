"""``python -m golden`` says what differs from the record; with ``--write`` it records what is made now.

What is equal but for rounding stays as it is recorded, and so does what is listed as changed on purpose: to record that
anew, take it out of ``CHANGED`` first.
"""

import sys

from golden.configurations import CHANGED, CONFIGURATIONS
from golden.record import differences, read, renewed, surprises, take, write


def main() -> int:
    now = {name: take(configuration) for name, configuration in CONFIGURATIONS.items()}
    recorded = read()
    if sys.argv[1:] == ["--write"]:
        write({n: renewed(now[n], recorded[n], changed=n in CHANGED) if n in recorded else now[n] for n in now})
        return 0
    places = {name: change.places for name, change in CHANGED.items()}
    found = [f"{n}: {s}" for n in now for s in surprises(differences(now[n], recorded[n]), places.get(n, ()))]
    print("\n".join(found) or "nothing differs but what is listed as changed")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
