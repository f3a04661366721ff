"""Crops of photographs: where they lie, how large they are, and what is in them."""

import math

import pytest
import torch
from PIL import Image

from hyperfan.data.crops import centre_crop, random_box, random_crop
from hyperfan.data.folder import pixels


def drawn(seed=0):
    return torch.Generator().manual_seed(seed)


def ramp(width, height):
    """Red grows to the right, green downwards."""
    made = Image.new("RGB", (width, height))
    made.putdata([(x * 255 // max(width - 1, 1), y * 255 // max(height - 1, 1), 7)
                  for y in range(height) for x in range(width)])  # fmt: skip
    return made


@pytest.mark.parametrize("size", [(160, 160), (300, 200), (213, 400)])
def test_random_parts_lie_inside_and_have_the_areas_and_sides_asked_for(size):
    source, areas, ratios = drawn(), [], []
    for _ in range(2000):
        left, top, right, bottom = random_box(size, source)
        assert 0 <= left < right <= size[0]
        assert 0 <= top < bottom <= size[1]
        w, h = right - left, bottom - top
        areas.append(w * h / (size[0] * size[1]))
        ratios.append(w / h)
    slack = 1.05  # sides are whole pixels
    assert 0.08 / slack < min(areas) < 0.09
    most = min(size[0], size[1] * 4 / 3) * min(size[1], size[0] * 4 / 3) / (size[0] * size[1])
    assert 0.95 * most < max(areas) < slack * most
    assert 3 / 4 / slack < min(ratios) < 0.8 < 1.25 < max(ratios) < 4 / 3 * slack


def test_parts_lie_anywhere_and_their_sides_are_balanced():
    source = drawn()
    boxes = torch.tensor([random_box((1000, 1000), source) for _ in range(4000)]).double()
    w, h = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    for start, side in ((boxes[:, 0], w), (boxes[:, 1], h)):
        place = (start / (1000 - side).clamp_min(1))[side < 900]
        assert place.mean().item() == pytest.approx(0.5, abs=4 / math.sqrt(12 * len(place)))
        assert place.std().item() == pytest.approx(1 / math.sqrt(12), abs=0.02)
    small = (w * h < 5e5).nonzero().squeeze()  # there every shape fits
    logs = (w / h).log()[small]
    reach = math.log(4 / 3)
    assert logs.mean().item() == pytest.approx(0, abs=4 * reach / math.sqrt(3 * len(logs)))
    # Uniform in its logarithm: were the ratio itself uniform, its logarithm would lean to one side by 0.04.
    assert (logs > 0).double().mean().item() == pytest.approx(0.5, abs=2 / math.sqrt(len(logs)))


def test_a_picture_made_smaller_is_smoothed():
    """Of a fine chessboard, a pixel of the crop is nearly grey, not black or white."""
    board = Image.new("L", (256, 256))
    board.putdata([255 * ((x + y) % 2) for y in range(256) for x in range(256)])
    made = pixels(random_crop(board.convert("RGB"), 8, drawn())).float()
    assert made.sub(127.5).abs().max() < 40


def test_the_area_is_uniform():
    """Of a square picture and one that fits nearly always; the mean of U(0.08, a) over areas that can be placed."""
    source = drawn()
    boxes = [random_box((1000, 1000), source) for _ in range(4000)]
    areas = torch.tensor([(r - x) * (b - t) / 1e6 for x, t, r, b in boxes])
    below = areas[areas < 0.5]  # there every shape fits
    assert below.mean().item() == pytest.approx((0.08 + 0.5) / 2, abs=4 * 0.42 / math.sqrt(12 * len(below)))


@pytest.mark.parametrize(("size", "box"), [((1000, 10), (493, 0, 506, 10)), ((10, 1000), (0, 493, 10, 506))])
def test_of_a_strip_it_is_the_middle(size, box):
    assert random_box(size, drawn()) == box


def test_a_random_crop_is_resized_and_mirrored_half_the_time():
    made = [pixels(random_crop(ramp(90, 60), 16, drawn(seed))) for seed in range(200)]
    assert {tuple(m.shape) for m in made} == {(3, 16, 16)}
    mirrored = [bool((m[0, 8, 0] > m[0, 8, -1]).item()) for m in made]
    assert 70 < sum(mirrored) < 130  # four standard deviations
    assert all((m[1, 0, 8] < m[1, -1, 8]).item() for m in made)  # never upside down
    assert torch.equal(made[0], pixels(random_crop(ramp(90, 60), 16, drawn(0))))


@pytest.mark.parametrize("size", [(90, 60), (60, 90), (64, 64), (20, 15), (7, 300)])
def test_a_test_crop_is_the_middle(size):
    made = pixels(centre_crop(ramp(*size), 56))
    assert made.shape == (3, 56, 56)
    middle = made[:2].float().mean((1, 2))
    # The ramps are symmetric about 127; cutting may be off by half a pixel of the resized picture.
    assert middle.sub(127).abs().max() < 4
    if min(size) >= 56:  # a smaller one is blown up, and ends in a margin of one colour
        shorter = 0 if size[0] <= size[1] else 1
        seen = made[shorter].float().max() - made[shorter].float().min()
        assert seen.item() == pytest.approx(255 * 56 / 64, abs=6)
