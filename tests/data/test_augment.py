"""Pictures that are moved and mirrored, beside the same done picture by picture."""

import pytest
import torch

from hyperfan.data.augment import shift_and_flip

N, C, H, W = 400, 2, 5, 7


def candidates(picture, most):
    """Everything that may become of a picture."""
    padded = torch.zeros(C, H + 2 * most, W + 2 * most, dtype=picture.dtype)
    for mirrored in (picture, picture.flip(-1)):
        padded[:, most : most + H, most : most + W] = mirrored
        for top in range(2 * most + 1):
            for left in range(2 * most + 1):
                yield padded[:, top : top + H, left : left + W].clone()


@pytest.mark.parametrize("most", [0, 1, 2])
def test_each_picture_is_one_of_those_it_may_become_and_all_of_these_come(most):
    picture = torch.randint(1, 256, (C, H, W), dtype=torch.uint8)
    made = shift_and_flip(picture.expand(N, C, H, W), most, torch.Generator().manual_seed(0))
    assert made.dtype == torch.uint8
    seen = [[torch.equal(one, other) for other in candidates(picture, most)].index(True) for one in made]
    # Of 400 draws among at most 50, one is missing with probability 50·0.98^400, 1.5 %; the seed is fixed.
    assert len(set(seen)) == 2 * (2 * most + 1) ** 2


def test_pictures_stay_apart_and_the_generator_decides():
    pictures = torch.arange(N).view(N, 1, 1, 1).expand(N, 1, 3, 3) + 1
    made = [shift_and_flip(pictures, 1, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)]
    assert torch.equal(made[0].amax((1, 2, 3)), pictures[:, 0, 0, 0])
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])
