"""``python -m golden`` says what differs from the record; with ``--write`` it records what is made now."""

import sys

from golden.configurations import CHANGED, CONFIGURATIONS
from golden.record import differences, read, surprises, take, write


def main() -> int:
    now = {name: take(configuration) for name, configuration in CONFIGURATIONS.items()}
    if sys.argv[1:] == ["--write"]:
        write(now)
        return 0
    recorded = read()
    places = {name: change.places for name, change in CHANGED.items()}
    found = [f"{n}: {s}" for n in now for s in surprises(differences(now[n], recorded[n]), places.get(n, ()))]
    print("\n".join(found) or "nothing differs but what is listed as changed")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
