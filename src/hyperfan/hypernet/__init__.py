"""What generates it? Embeddings go through a trunk to heads, which put out the mainnet's tensors."""

from hyperfan.hypernet.chunks import Chunks
from hyperfan.hypernet.embeddings import Embedding
from hyperfan.hypernet.hypernet import HyperNet
from hyperfan.hypernet.per_sample import PerSample
from hyperfan.hypernet.prediction import Prediction, predict

__all__ = ["Chunks", "Embedding", "HyperNet", "PerSample", "Prediction", "predict"]
