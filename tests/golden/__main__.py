"""``python -m golden`` says what differs from the record; with ``--write`` it records what is made now."""

import sys

from golden.configurations import CONFIGURATIONS
from golden.record import differences, read, take, write


def main() -> int:
    now = {name: take(configuration) for name, configuration in CONFIGURATIONS.items()}
    if sys.argv[1:] == ["--write"]:
        write(now)
        return 0
    recorded = read()
    found = [f"{name}: {d}" for name in now for d in differences(now[name], recorded[name])]
    print("\n".join(found) or "nothing differs")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
