"""Groups of unequal size, against the same groups padded by hand to the largest."""

import itertools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hyperfan as hf
from benchmarks.harness import Times, compare_times, interleave, main, pooled
from benchmarks.per_sample_overhead import POLICY_SIZES, ByHand, Field, start_alike

CLAIM = (
    "forward and backward with 64 codes that serve 1 to 16 rows each takes at most 1.5 times what batched products "
    "written by hand take on groups padded to 16 rows"
)
OWN_FORWARD = "the same, over code by hand, where the mainnet is a module with a forward of its own: reported"
GROUPS, MOST, CONDITION, TRUNK = 64, 16, 16, 64


def job(mainnet: nn.Module) -> dict[str, Callable[[], object]]:
    """Both on the same data."""
    counts = torch.randint(1, MOST + 1, (GROUPS,), generator=torch.Generator().manual_seed(0))
    x, e = torch.rand(int(counts.sum()), POLICY_SIZES[0]), torch.randn(GROUPS, CONDITION)
    y = torch.rand(len(x), POLICY_SIZES[-1])
    inside = torch.arange(MOST) < counts.unsqueeze(1)
    each = tuple(counts.tolist())
    embedding = hf.Embedding(CONDITION, given=True, per="net")
    net = hf.HyperNet(mainnet, embedding, trunk=(TRUNK,), nonlinearity="relu")
    hand = ByHand(POLICY_SIZES, CONDITION, TRUNK, torch.relu)
    start_alike(hand, net)

    def padded() -> Tensor:
        rows = x.new_zeros(GROUPS, MOST, x.shape[1])
        rows[inside] = x
        return hand(rows, e)[inside]

    torch.testing.assert_close(net(x, embedding=e, counts=each), padded(), rtol=1e-3, atol=1e-4)

    def step(module: nn.Module, run: Callable[[], Tensor]) -> None:
        module.zero_grad()
        F.mse_loss(run(), y).backward()

    return {
        "ours": lambda: step(net, lambda: net(x, embedding=e, counts=each)),
        "theirs": lambda: step(hand, padded),
    }


def measure(rounds: str) -> dict[str, Times]:
    """Seconds of each, in this process."""
    torch.manual_seed(0)
    layers = [m for pair in itertools.pairwise(POLICY_SIZES) for m in (nn.Linear(*pair), nn.ReLU())]
    jobs = {"ragged": job(nn.Sequential(*layers[:-1])), "ragged_own_forward": job(Field(POLICY_SIZES))}
    return {name: interleave(functions, int(rounds)) for name, functions in jobs.items()}


def run(rounds: int = 60, processes: int = 3) -> bool:
    runs = pooled("ragged", rounds, processes)
    claims = {"ragged": (CLAIM, 1.5), "ragged_own_forward": (OWN_FORWARD, None)}
    holds = [compare_times(n, claim, [times[n] for times in runs], most) for n, (claim, most) in claims.items()]
    return all(holds)


if __name__ == "__main__":
    main("ragged", run, measure)
