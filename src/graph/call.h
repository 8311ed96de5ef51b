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

// One argument of the op's schema, for those who look into a call (fusion); executing it needs none of this.
struct Formal {
  enum class Kind : uint8_t {
    kNone,     // not given
    kTensor,   // operand `first`
    kTensors,  // a list: `count` operands from `first`
    kScalar,   // scalar `first`; a number, or a CPU tensor without dimensions
    kScalars,  // a list: `count` scalars from `first`
    kFixed,    // `text`
    kMixed,    // a list with gaps, or of both sorts
  };
  std::string name;
  Kind kind = Kind::kNone;
  uint32_t first = 0;
  uint32_t count = 1;
  // kScalar from a CPU tensor: its bytes are the scalar's, in this type.
  bool host_tensor = false;
  DType dtype = DType::kFloat64;
  std::string text;  // kFixed: as in `attributes`
};

class Call : public RefCounted {
 public:
  ~Call() override = default;

  // The same call over tensors that lie otherwise in memory: `operands` and `results` differ from this one's in strides
  // only. It keeps the id.
  virtual Ref<const Call> relaid(std::vector<TensorMeta> to_operands, std::vector<TensorMeta> to_results) const {
    Ref<Call> copy = make_ref<Call>();
    copy_into(*copy, std::move(to_operands), std::move(to_results));
    return copy;
  }

  const ops::Op* op = nullptr;      // row of the op table; never null
  std::string name;                 // "aten::add.Tensor"
  std::string attributes;           // fixed arguments, as text
  std::vector<Operand> operands;    // in argument order, lists flattened
  std::vector<TensorMeta> results;  // fresh results, lists flattened; in-place results are operands
  std::vector<ScalarKind> scalars;
  std::vector<Formal> formals;      // in schema order
  uint64_t id = 0;                  // unique in the process; the order of first use

 protected:
  void copy_into(Call& copy, std::vector<TensorMeta> to_operands, std::vector<TensorMeta> to_results) const {
    copy.op = op;
    copy.name = name;
    copy.attributes = attributes;
    for (size_t k = 0; k < operands.size(); ++k) copy.operands.push_back({std::move(to_operands[k]), operands[k].access});
    copy.results = std::move(to_results);
    copy.scalars = scalars;
    copy.formals = formals;
    copy.id = id;
  }
};

}  // namespace sinter::graph
