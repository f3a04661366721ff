"""The check on the parameters of norms."""

import math
from collections.abc import Iterator

from hyperfan.probe.diagnosis import Finding, FindingName
from hyperfan.probe.evidence import Evidence

MAX_DISTANCE = 0.1
"""Root mean square distance of norm parameters from where they start."""


def norms(e: Evidence) -> Iterator[Finding]:
    """Find norm scales away from 1 and norm shifts away from 0."""
    values = {name: t.detach() for name, t in {**e.subject.plain, **e.generated}.items()}
    off: dict[str, float] = {}
    for t in e.subject.spec:
        if t.role in ("scale", "shift") and t.start is not None:
            off[t.name] = math.sqrt((values[t.name].double() - t.start).square().mean().item())
    off = {name: distance for name, distance in off.items() if distance > MAX_DISTANCE}
    plain = [n for n in off if n not in e.generated]
    zero = [n for n in plain if not values[n].any()]
    trained = [n for n in plain if values[n].numel() > 1 and values[n].std() > 0]
    if zero:
        yield Finding(
            FindingName.NORM_SCALES_ZERO,
            "note",
            tuple(zero),
            "every value is exactly 0",
            "often on purpose, so that a residual branch starts silent",
            "torch.nn.init.ones_(norm.weight), if it is not",
        )
    if trained:
        yield Finding(
            FindingName.NORMS_TRAINED,
            "note",
            tuple(trained),
            f"root mean square distance up to {max(off[n] for n in trained):.3g} from where a norm starts",
            "the mainnet comes with parameters of its own",
            "nothing, if so",
        )
    wrong = [n for n in off if n not in zero and n not in trained]
    if wrong:
        generated = any(n in e.generated for n in wrong)
        yield Finding(
            FindingName.NORMS_OFF,
            "warning",
            tuple(wrong),
            f"root mean square distance {max(off[n] for n in wrong):.3g} from where a norm starts: scale 1, shift 0",
            "the hypernet makes them like weights" if generated else "they were set by hand",
            "leave norms out of generate=, or start their heads at weight 0 and bias 1 (scale) or 0 (shift)"
            if generated
            else "norm.reset_parameters(), if the net is meant to be at its start",
        )
