import itertools

import torch

from hyperfan.experiments.seeds import generator


def draw(*words):
    return torch.rand(4, generator=generator(*words)).tolist()


def test_every_seed_and_purpose_has_numbers_of_its_own():
    words = [(0, "init"), (1, "init"), (-1, "init"), (0, "probe"), (0, "order", 0), (0, "order", 1), (0, "order", 10),
             (0, "order", 1, 0), (1, "order", 0), (10, "order", 0), (2**70, "init"), (0,)]  # fmt: skip
    drawn = [draw(*w) for w in words]
    assert drawn == [draw(*w) for w in words]
    assert all(a != b for a, b in itertools.combinations(drawn, 2))


def test_numbers_do_not_depend_on_torch_s_own_state_nor_change_it():
    before = draw(3, "init")
    torch.manual_seed(5)
    state = torch.get_rng_state()
    assert draw(3, "init") == before
    assert torch.equal(torch.get_rng_state(), state)


def test_numbers_stay_the_same_from_version_to_version():
    """Else no result could be made again."""
    assert torch.randint(1000, (5,), generator=generator(3, "order", 0)).tolist() == [947, 650, 869, 525, 877]
