"""What torch's functions do to the values of a tensor, by name. What is in none of these sets is not known."""

ELEMENTWISE = set(
    "relu relu6 leaky_relu elu selu celu gelu silu mish softplus tanh sigmoid logsigmoid log_sigmoid softsign "
    "tanhshrink hardtanh hardsigmoid hardswish hardshrink softshrink threshold sin cos sinc erf exp expm1 log "
    "log1p sqrt rsqrt square abs absolute atan arctan asinh sinh cosh sign neg negative reciprocal pow rpow "
    "float_power clamp clamp_min clamp_max clip nan_to_num where maximum minimum max min gt lt ge le eq ne "
    "greater less add sub mul div rsub rdiv rtruediv truediv true_divide divide multiply subtract iadd isub "
    "imul".split()
)
"""Functions of each element alone, or of elements at the same place in several tensors."""

ADDITIONS = {"add", "sub", "rsub", "subtract", "iadd", "isub"}
PRODUCTS = {"mul", "multiply", "imul"}
QUOTIENTS = {"div", "divide", "true_divide", "truediv"}
ARITHMETIC = ADDITIONS | PRODUCTS | QUOTIENTS | {"neg", "negative", "rdiv", "rtruediv"}

NORMS = {"batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm"}
"""What puts out unit variance whatever came in."""

RECURRENT = {"lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"}
LOOKUPS = {"embedding", "embedding_bag"}
CONCATENATIONS = {"cat", "concat", "concatenate", "stack", "hstack", "vstack"}
MIXERS = {"matmul", "bmm", "mm", "einsum", "baddbmm", "scaled_dot_product_attention", "tensordot"}

UNCHANGED = set(
    "contiguous clone to type type_as float double half bfloat16 cpu cuda requires_grad dropout dropout1d "
    "dropout2d dropout3d alpha_dropout feature_alpha_dropout feature_dropout".split()
)
"""The same values at the same places."""

MOVED = set(
    "get view view_as reshape reshape_as flatten unflatten permute transpose movedim moveaxis swapaxes swapdims t "
    "squeeze unsqueeze expand expand_as broadcast_to repeat repeat_interleave tile roll flip rot90 pad as_strided "
    "pixel_shuffle pixel_unshuffle channel_shuffle unfold masked_fill tril triu diagonal interpolate upsample "
    "grid_sample atleast_1d atleast_2d atleast_3d pack_padded_sequence".split()
)
"""The same values at other places."""

SPLITS = {"chunk", "split", "unbind", "tensor_split", "getitem", "select", "narrow", "index_select", "gather", "iter"}
"""Some of the values."""

POOLED = set(
    "mean avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool3d adaptive_avg_pool1d "
    "adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d "
    "lp_pool1d lp_pool2d boolean_dispatch fn max_pool1d_with_indices max_pool2d_with_indices "
    "max_pool3d_with_indices".split()
)
"""One value for several. A layer that reads them is taken to read the values themselves."""

MADE_ANEW = set(
    "new_zeros new_ones new_full new_empty new_tensor zeros_like ones_like full_like empty_like rand_like "
    "randn_like randint_like size dim numel".split()
)
"""What takes a tensor only for its shape."""

FROM_OUTSIDE = {"from_numpy", "as_tensor", "asarray", "frombuffer", "from_dlpack"}
"""What may carry values that were computed where nobody looked."""

KNOWN_FORM = {"prelu", "rrelu", "glu", "detach"}

NOT_LAYERS = (
    NORMS | ELEMENTWISE | KNOWN_FORM | CONCATENATIONS | UNCHANGED | MOVED | SPLITS | POOLED | MADE_ANEW
)  # fmt: skip
"""Functions in which a weight is no layer: it is only changed on its way to one."""
