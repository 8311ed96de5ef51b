"""What a random program may say: one statement form a line, filled in with what fits the tensors at hand.

`{n}` is a tensor, `{o}` one that broadcasts to it (or a scalar), `{m}` the same but always a tensor, `{a}` and `{b}`
any two, `{s}` a scalar of its kind, `{D}` a dtype (`{V}` one whose every byte pattern is a value), `{z}` a size; for
tensors with dimensions `{d}` and `{e}` are two of them, `{i}` an index into `{d}` (`{i0}` into the first), `{k}` a
length within it. A form with `=>` in front needs what stands there.

`x[...] = y` has no `y` of its own: PyTorch's indexing fills from a zero-dimensional tensor on the CPU, and only there,
without asking whether its memory overlaps; copy_ refuses it on every device.
"""

from __future__ import annotations


def forms(text: str) -> list[tuple[str, str]]:
    """(what the tensor must be, form) for each line."""
    found = []
    for line in filter(None, map(str.strip, text.splitlines())):
        need, arrow, form = line.rpartition("=>")
        found.append((need.strip() if arrow else "", form.strip()))
    return found


VIEWS = forms("""
    full => {n}.view({f}, -1)
    full => {n}.reshape({f}, -1)
    {n}.flatten()
    {n}.view(-1)
    {n}.ravel()
    {n}.view_as({n})
    {n}.detach()
    {n}.data
    {n}.view({V})
    {n}.contiguous()
    {n}.to({D})
    {n}.to(D)
    {n}.conj()
    {n}.real
    {n}.resolve_conj()
    torch.ops.aten.alias({n})
    {n}.as_strided({as})
    {n}.as_strided({as})
    {n}.as_strided({as})
    torch.as_strided({n}, {z}, {z})
    {n}[None]
    {n}.squeeze()
    torch.broadcast_to({n}, (3, *{n}.size()))
    complex => {n}.imag
    complex => torch.view_as_real({n})
    complex => {n}.conj().imag
    complex => {n}.conj()
    pairs => torch.view_as_complex({n})
    dim => {n}.transpose({d}, {e})
    dim => {n}.permute({p})
    dim => {n}.permute({p})
    dim => {n}.unsqueeze({d})
    dim => {n}.squeeze({d})
    dim => {n}.movedim({d}, {e})
    dim => {n}.swapaxes({d}, {e})
    dim => {n}.narrow({d}, {i}, {rest})
    dim => {n}[{i}:]
    dim => {n}[{i}:{k}]
    dim => {n}[..., ::2]
    dim => {n}[..., 1::3]
    dim => {n}[..., None]
    dim => {n}.expand(2, *{n}.size())
    dim => {n}.unsqueeze({d}).expand(*[-1] * {n}.dim(), 2)
    length => {n}.select({d}, {i})
    length => {n}.select({d}, {i})
    length => {n}.unfold({d}, {k}, 1)
    length => {n}.unfold({d}, {k}, 2)
    length => {n}.chunk(2, {d})[-1]
    length => {n}.split({k}, {d})[0]
    length => {n}.unbind({d})[{i}]
    length => {n}.unflatten({d}, (-1, 1))
    length => {n}.tensor_split(2, {d})[0]
    matrix => {n}.diagonal(0, {d}, {e})
    matrix => {n}.diagonal(1, -1, -2)
    matrix => {n}.mT
    matrix => {n}.t()
""")

WRITES = forms("""
    {n}.add_({o})
    {n}.sub_({o}, alpha=2)
    {n} += {o}
    {n}.mul_({s})
    {n}.mul_({o})
    {n}.fill_({s})
    {n}.fill_({n}.sum())
    {n}.zero_()
    {n}.neg_()
    {n}.abs_()
    {n}.sign_()
    {n}.relu_()
    {n}.eq_({o})
    {n}.logical_not_()
    {n}.bitwise_not_()
    {n}.clamp_(-2, 2)
    {n}.copy_({m})
    {n}.copy_({m})
    {n}[...] = {s}
    {n}[...] = {m} + 0
    {n}.addcmul_({m}, {n})
    {n}.masked_fill_({n} == 1, {s})
    {n}[{n} > 0] = {s}
    torch._foreach_add_([{n}, {n}], 1)
    torch._foreach_zero_([{n}, {m}])
    torch._foreach_copy_([{n}], [{m}])
    dim => {n}[:1] = {s}
    dim => {n}[-1] = {n}[0]
    dim => {n}[..., ::2].add_({s})
    dim => {n}[:-1].copy_({n}[1:])
    dim => {n}.cumsum_({d})
    dim => {n}.squeeze_()
    dim => {n}.unsqueeze_({d})
    dim => {n}.transpose_({d}, {e})
    dim => {n}.transpose({d}, 0).mul_({s})
    dim => {n}.scatter_({d}, torch.zeros_like({n}, dtype=torch.int64), {s})
    length => {n}.select({d}, {i}).add_({s})
    length => {n}.index_fill_({d}, torch.tensor([{i}, 0], device=D), {s})
    length => {n}.index_copy_({d}, torch.tensor([{i}], device=D), {n}.narrow({d}, 0, 1))
    length => {n}.index_add_({d}, torch.tensor([{i}], device=D), {n}.narrow({d}, 0, 1).clone())
    length => {n}[torch.tensor([{i0}, 0], device=D)] = {s}
    matrix => {n}.tril_()
    matrix => {n}.fill_diagonal_({s})
    matrix => {n}.t_()
""")

MEMORY = forms("""
    {a}.resize_({z})
    {a}.resize_as_({b})
    {a}.set_({b})
    same dtype => {a}.set_({b}.untyped_storage(), {b}.storage_offset(), {b}.size(), {b}.stride())
    {a}.set_()
    {a}.data = {b}
    {a}.data = {b}.clone()
    {a}.as_strided_({a}.size(), {a}.stride(), {a}.storage_offset())
    {a}.detach_()
    {a} = {b}
    {a}.untyped_storage().resize_({a}.untyped_storage().nbytes())
""")

OUTS = forms("""
    torch.add({a}, {b}, out={n})
    torch.mul({a}, 2, out={n})
    torch.abs({a}, out={n})
    torch.clamp({a}, -1, 1, out={n})
    torch.cat([{a}, {a}], out={n})
    torch.stack([{a}, {a}], out={n})
    torch.sum({a}, out={n})
    torch.where({a} > 0, {a}, {b}, out={n})
    torch.cumsum({a}, -1, out={n})
    torch.sum({a}, -1, out={n})
    torch.index_select({a}, -1, torch.tensor([0], device=D), out={n})
    torch.mm({a}, {a}.t(), out={n})
""")

PURE = forms("""
    {n} + {o}
    {n} * {s}
    -{n}
    {n} == {o}
    {n}.clone()
    {n}.clone(memory_format=torch.contiguous_format)
    {n}.to({D}, copy=True)
    {n}.sum()
    {n}.new_zeros({z})
    {n}[{n} > 0]
    torch.cat([{n}, {n}])
    torch.stack([{n}, {n}], -1)
    torch.zeros_like({n})
    torch.maximum({n}, {n})
    torch.where({n} == {s}, {n}, {o})
    dim => {n}.sum({d})
    dim => {n}.flip({d})
    dim => {n}.roll(1, {d})
    dim => {n}.cumsum({d})
    dim => {n}.amax({d})
    dim => {n}.sort({d}, stable=True)[0]
    dim => {n}.repeat(*[2] * {n}.dim())
    length => {n}.index_select({d}, torch.tensor([0, {i}], device=D))
    length => {n}[torch.tensor([0], device=D)]
    matrix => {n} @ {n}.t()
    matrix => {n}.tril()
""")

READS = forms("""
    read({n})
    read({n})
    item({n}.sum())
    item({n}.tolist())
    item(bool(({n} == 0).any()))
    item(torch.equal({n}, {n}))
    item({n}.data_ptr() == {n}.detach().data_ptr())
    sync()
    end_graph()
""")
