// One way of calling an op: the op, the metadata of its operands and every argument that is fixed.
//
// Two recorded ops with equal metadata and attributes share one Call, so that comparing graphs compares
// pointers. A Call is immutable and reference-counted; src/torch derives the class that can also execute.
// What may differ between two uses of a Call: which buffers, their offsets, and the values of scalars.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/tensor_meta.h"
#include "ops/op_table.h"
#include "support/intrusive_ptr.h"

namespace sinter::graph {

enum class Access : uint8_t { kRead, kWrite, kReadWrite };

struct Operand {
  TensorMeta meta;
  Access access = Access::kRead;
};

// A number that arrives when the graph runs. Complex values use both words; a boolean or integer uses the
// first as int64, a float the first as the bits of a double.
struct Scalar {
  uint64_t bits[2] = {0, 0};
};

enum class ScalarKind : uint8_t { kBool, kInt, kFloat, kComplex };

class Call : public RefCounted {
 public:
  ~Call() override = default;

  const ops::Op* op = nullptr;      // row of the op table; never null
  std::string name;                 // "aten::add.Tensor"
  std::string attributes;           // fixed arguments, as text
  std::vector<Operand> operands;    // in argument order, lists flattened
  std::vector<TensorMeta> results;  // fresh results, lists flattened; in-place results are operands
  std::vector<ScalarKind> scalars;
  uint64_t id = 0;                  // unique in the process; the order of first use
};

}  // namespace sinter::graph
