"""Glorot & Bengio, *Understanding the difficulty of training deep feedforward neural networks*, AISTATS 2010.

Variance 1/fan_in keeps the forward pass, 1/fan_out the backward pass; the paper takes their harmonic mean,
2/(fan_in + fan_out), which is what ``torch.nn.init.xavier_uniform_`` does. On a head, fan_in = d_k makes the generated
weights far too large, and the harmonic mean, ruled by the head's huge fan_out, too small.
"""

from hyperfan.init.classical import register_family

register_family("xavier", "Glorot & Bengio 2010", gained=False)
