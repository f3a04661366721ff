"""How the weights of a traced run are wired: what each consumes, and what follows it."""

from collections.abc import Iterable, Sequence

from hyperfan.mainnet.spec import Nonlinearity
from hyperfan.mainnet.trails import Logits, Trail


class Wiring:
    """The wiring of a mainnet's weights, by their names, as far as a run has shown it.

    Attributes:
        consumes: the nonlinearity between each weight and the layer before it.
        reads: the weight whose output sets the scale of what each weight reads, if one does.
        sources: the weights whose outputs each weight reads.
        followed_by: the nonlinearity behind each weight.
        input_readers: weights that read the mainnet's inputs.
        scale_assumed: weights that read values whose scale is assumed and not derived.
        looked_up: weights whose rows are looked up.
        added_rows: sets of weights whose rows, looked up, are added to each other.
        branch_ends: the last weights of residual branches.
        residual_blocks: the number of such branches.
        logits: the second moment of attention logits that each weight's queries make with unit keys.
    """

    def __init__(self) -> None:
        self.consumes: dict[str, Nonlinearity] = {}
        self.reads: dict[str, str | None] = {}
        self.sources: dict[str, frozenset[str]] = {}
        self.followed_by: dict[str, Nonlinearity] = {}
        self.input_readers: set[str] = set()
        self.scale_assumed: set[str] = set()
        self.looked_up: set[str] = set()
        self.added_rows: list[frozenset[str]] = []
        self.branch_ends: set[str] = set()
        self.residual_blocks = 0
        self.logits: dict[str, float] = {}
        self._tables: set[str] = set()

    def add_readers(
        self,
        weights: Iterable[str],
        nonlinearity: Nonlinearity,
        reads: str | None = None,
        sources: frozenset[str] = frozenset(),
        *,
        lookup: bool = False,
    ) -> None:
        """Record what weights read. The first use counts; that of a look-up table only until it is used as a layer."""
        for weight in weights:
            if weight not in self.consumes or weight in self._tables:
                self.consumes[weight], self.reads[weight], self.sources[weight] = nonlinearity, reads, sources
                self._tables.discard(weight)
            if lookup:
                self._tables.add(weight)
                self.looked_up.add(weight)

    def add_following(self, trails: Iterable[Trail]) -> None:
        """Record what follows the weights that these trails come from, where nothing is known to follow them yet."""
        for trail in trails:
            new = trail.sources - self.followed_by.keys()
            if new:
                self.followed_by.update(dict.fromkeys(new, trail.nonlinearity()))

    def add_sum(self, terms: Sequence[Trail]) -> None:
        """Record a sum of several tensors, if all of them are rows of tables."""
        names = frozenset[str]().union(*(trail.sources for trail in terms))
        if names <= self.looked_up and all(trail.sources and trail.is_identity for trail in terms):
            self.added_rows.append(names)

    def add_logits(self, found: Logits | None, second_moment: float) -> None:
        """Record attention logits that go into a softmax."""
        if found is not None:
            self.logits |= dict.fromkeys(found.queries - self.logits.keys(), found.second_moment * second_moment)
