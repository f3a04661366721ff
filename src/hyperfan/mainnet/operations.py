"""Torch's functions by what they do to the values of a tensor. A function in none of these sets is not known."""

ACTIVATIONS = (
    "relu relu6 leaky_relu elu celu selu gelu silu mish softplus tanh sigmoid logsigmoid softsign tanhshrink hardtanh "
    "hardsigmoid hardswish hardshrink softshrink threshold"
).split()
"""Functions of ``torch.nn.functional`` that layers apply to each element, without parameters or draws."""
ELEMENTWISE = {
    *ACTIVATIONS,
    *(
        "log_sigmoid sin cos sinc erf exp expm1 log log1p sqrt rsqrt square abs absolute atan arctan asinh sinh cosh "
        "sign neg negative reciprocal pow rpow float_power clamp clamp_min clamp_max clip nan_to_num where maximum "
        "minimum max min gt lt ge le eq ne greater less add sub mul div rsub rdiv rtruediv truediv true_divide divide "
        "multiply subtract iadd isub imul"
    ).split(),
}
"""Functions of each element alone, or of elements at the same position in several tensors."""

PERIODIC = {"sin", "cos"}
ADDITIONS = {"add", "sub", "rsub", "subtract", "iadd", "isub"}
PRODUCTS = {"mul", "multiply", "imul"}
QUOTIENTS = {"div", "divide", "true_divide", "truediv"}
ARITHMETIC = ADDITIONS | PRODUCTS | QUOTIENTS | {"neg", "negative", "rdiv", "rtruediv"}

NORMS = {"batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm"}
"""Functions that put out unit variance whatever came in."""

RECURRENT = {"lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"}
LOOKUPS = {"embedding", "embedding_bag"}
CONCATENATIONS = {"cat", "concat", "concatenate", "stack", "hstack", "vstack"}
PLAIN_PRODUCTS = {"matmul", "bmm", "mm", "grouped_mm"}
BIASED_PRODUCTS = {"addmm", "baddbmm"}
"""Products of the last two of three arguments, added to the first."""
MATRIX_PRODUCTS = PLAIN_PRODUCTS | BIASED_PRODUCTS | {"einsum", "scaled_dot_product_attention", "tensordot"}

CONVOLUTIONS = {f"conv{kind}{n}d" for kind in ("", "_transpose") for n in (1, 2, 3)}
LAYER_FUNCTIONS = CONVOLUTIONS | {"linear"}
"""Functions of an input and a weight that make a layer, whatever the weight is."""

UNCHANGED = set(
    "contiguous clone to type type_as float double half bfloat16 cpu cuda requires_grad dropout dropout1d "
    "dropout2d dropout3d alpha_dropout feature_alpha_dropout feature_dropout".split()
)
"""Functions that return the same values at the same positions."""

REARRANGEMENTS = set(
    "get view view_as reshape reshape_as flatten unflatten permute transpose movedim moveaxis swapaxes swapdims t "
    "squeeze unsqueeze expand expand_as broadcast_to repeat repeat_interleave tile roll flip rot90 pad as_strided "
    "pixel_shuffle pixel_unshuffle channel_shuffle unfold masked_fill tril triu diagonal interpolate upsample "
    "grid_sample atleast_1d atleast_2d atleast_3d pack_padded_sequence".split()
)
"""Functions that return the same values at other positions."""

SELECTIONS = set("chunk split unbind tensor_split getitem select narrow index_select gather iter".split())
"""Functions that return some of the values."""

POOLS = set(
    "mean amax amin avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool3d adaptive_avg_pool1d "
    "adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d "
    "lp_pool1d lp_pool2d boolean_dispatch fn max_pool1d_with_indices max_pool2d_with_indices "
    "max_pool3d_with_indices".split()
)
"""Functions that return one value for several. A layer that reads them is taken to read the values themselves."""

SHAPE_ONLY = set(
    "new_zeros new_ones new_full new_empty new_tensor zeros_like ones_like full_like empty_like rand_like "
    "randn_like randint_like size dim numel".split()
)
"""Functions that take a tensor only for its shape."""

EXTERNAL_VALUES = {"from_numpy", "as_tensor", "asarray", "frombuffer", "from_dlpack"}
"""Functions whose result may hold values that were computed outside torch, where nothing is traced."""

SPECIAL_CASES = {"prelu", "rrelu", "glu", "detach"}
"""Functions that the tracer handles one by one."""

NOT_LAYERS = (
    NORMS | ELEMENTWISE | SPECIAL_CASES | CONCATENATIONS | UNCHANGED | REARRANGEMENTS | SELECTIONS | POOLS | SHAPE_ONLY
)  # fmt: skip
"""Functions in which a weight is no layer: it is only transformed on its way to one."""
