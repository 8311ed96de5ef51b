"""What is not compared, by name, with the reason. Only things that no strided lazy device can do belong here."""

from __future__ import annotations

# Results are memory that nobody wrote: only their metadata is compared.
UNINITIALISED = {
    "empty",
    "empty_like",
    "empty_strided",
    "empty_permuted",
    "new_empty",
    "new_empty_strided",
    "resize_",
    "resize_as_",
}

# Not run at all.
LEFT_OUT: dict[str, str] = {
    "to_sparse": "the device holds strided tensors only",
    "tensor_split": "PyTorch's composite wants the tensor of indices on the CPU, whatever the device",
    "to": "the samples name the CPU as the place to go to",
}

# Eager's own results vary in the last bits from run to run.
VARIES: dict[str, str] = {
    "linalg.lstsq": "LAPACK's blocks follow the alignment of its work space",
}

# Differences that are not ours, by operator: what is said of them (a regular expression), and the reason.
EXPECTED: dict[str, tuple[str, str]] = {
    "addbmm": (r"inplace sample", "eager grows an argument that is too small over the values that it still reads"),
    "kron": (r"version counters moved", "eager's composite does not count its growing of out="),
    "linalg.lstsq": (r"values differ", VARIES["linalg.lstsq"]),
}

# The same where kernels of ours run, whose last bits are not eager's.
EXPECTED_OF_OURS: dict[str, tuple[str, str]] = {
    "special.ndtr": (r"out wider", "computed in 32 bits, and held to the bounds of the 64 that it is stored in"),
}

# Where kernels of ours run, composites that round to 16 bits many times over, with sums that cancel: the reference
# engine compares them in all types, ours in 32 and 64 bits.
ROUNDED_OFTEN = {
    "nn.functional.linear_cross_entropy",
    "nn.functional.multi_head_attention_forward",
    "nn.Transformer",
    "nn.TransformerEncoder",
    "nn.TransformerEncoderLayer",
    "nn.TransformerDecoderLayer",
    "nn.MultiheadAttention",
}

# Where kernels of ours run: a difference in the last bit grows to any size within a few steps, as it does for eager
# with another number of threads.
CHAOTIC = {"LBFGS": "pairs of nearly equal gradients are subtracted, and steps have no bound"}
