"""All nets by name, in the order of the list."""

from zoo.blocks import BLOCKS
from zoo.layers import LAYERS
from zoo.names import NEW, TESTED_BEFORE
from zoo.net import Net
from zoo.pictures import PICTURE_BLOCKS
from zoo.sequences import SEQUENCES
from zoo.text import TEXT
from zoo.vision import VISION

_PARTS = {
    "transformers: text": TEXT,
    "transformers: states, audio, series": SEQUENCES,
    "transformers: vision": VISION,
    "torch's layers": LAYERS,
    "blocks: pictures and signals": PICTURE_BLOCKS,
    "blocks: others": BLOCKS,
}
ZOO: dict[str, Net] = {name: net for part in _PARTS.values() for name, net in part.items()}
KINDS = {name: kind for kind, part in _PARTS.items() for name in part}
assert ZOO.keys() == {*TESTED_BEFORE, *NEW}, ZOO.keys() ^ {*TESTED_BEFORE, *NEW}
