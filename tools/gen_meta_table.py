"""Writes the table of PyTorch's structured meta functions, from the headers of the torch that is built against.

    python tools/gen_meta_table.py TORCH_INCLUDE_DIR OUTPUT.cpp

A row pairs an operator ("aten::add.Tensor") with the C++ function that infers its result (at::meta::add). Only
functional forms are taken: in-place and out= forms touch storages, and would end the graph. The function whose
parameters are those of the operator's schema is the operator's.
"""

import pathlib
import re
import sys

STRUCT = re.compile(r"struct TORCH_API (\w+) \{\s*using schema = (.*?);(.*?)\n\};", re.S)
FUNCTION = re.compile(r"TORCH_API (.*?) (\w+)\((.*?)\);")
# A schema with symbolic sizes is served by the function that takes integers.
INTEGERS = {
    "c10::SymInt": "int64_t",
    "c10::SymIntArrayRef": "at::IntArrayRef",
    "at::OptionalSymIntArrayRef": "at::OptionalIntArrayRef",
    "std::optional<c10::SymInt>": "std::optional<int64_t>",
}


def split(parameters):
    """The parts of a parameter list, at its top-level commas."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(parameters):
        depth += (c in "<({") - (c in ">)}")
        if c == "," and depth == 0:
            parts.append(parameters[start:i].strip())
            start = i + 1
    return [p for p in [*parts, parameters[start:].strip()] if p]


def type_of(parameter):
    """`const at::Scalar & alpha=1` -> `const at::Scalar &`."""
    return re.sub(r"\s*\w+$", "", re.sub(r"\s*=.*$", "", parameter)).strip()


def normal(types):
    return [re.sub(r"\s+", " ", INTEGERS.get(t, t)) for t in types]


def rows(ops):
    for header in sorted(ops.glob("*_meta_dispatch.h")):
        name = header.name[: -len("_meta_dispatch.h")]
        functions = FUNCTION.findall(header.read_text())
        names = {f for _, f, _ in functions}
        functional = [(ret, f, split(args)) for ret, f, args in functions if f == name and f"{name}_outf" in names]
        if not functional or name.endswith("_"):
            continue
        for _struct, schema, body in STRUCT.findall((ops / f"{name}_ops.h").read_text()):
            op = re.search(r'name = "(.*?)"', body).group(1)
            overload = re.search(r'overload_name = "(.*?)"', body).group(1)
            if op != f"aten::{name}" or "(a!)" in body or "Dimname" in schema or "Tensor(a)" in body:
                continue
            wanted = normal(split(schema[schema.index("(") + 1 : schema.rindex(")")]))
            for ret, function, args in functional:
                types = [type_of(a) for a in args]
                if normal(types) == wanted:
                    full = op + (f".{overload}" if overload else "")
                    yield header.name, full, f"{ret} (*)({', '.join(types)})", function


def main():
    include, output = map(pathlib.Path, sys.argv[1:])
    table = list(rows(include / "ATen" / "ops"))
    if len(table) < 150:
        sys.exit(
            f"gen_meta_table.py: found only {len(table)} meta functions in {include}; has PyTorch's layout changed?"
        )
    lines = ["// Written by tools/gen_meta_table.py. PyTorch's structured meta functions by operator.", ""]
    lines += ["#include <ATen/core/Tensor.h>"]  # the operators' headers lean on it
    lines += [f"#include <ATen/ops/{h}>" for h in sorted({h for h, *_ in table})]
    lines += ['#include "torch/meta_table.h"', "", "namespace sinter::torch_device {", ""]
    lines += ["void add_meta_functions(MetaTable& table) {"]
    lines += [f'  table.add("{op}", static_cast<{pointer}>(&at::meta::{f}));' for _, op, pointer, f in table]
    lines += ["}", "", "}  // namespace sinter::torch_device", ""]
    text = "\n".join(lines)
    if not output.exists() or output.read_text() != text:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text)


if __name__ == "__main__":
    main()
