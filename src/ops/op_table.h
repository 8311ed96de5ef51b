// The op table: the single place that says what an aten op is beyond what its schema tells.
//
// A row names an op (all overloads, or one) and its traits. An op without a row is a library call whose schema
// is believed: its writes are the arguments marked (a!), its results depend on metadata alone.
// Torch-free; looked up once per op when the device is registered.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace sinter::ops {

enum class OpClass : uint8_t { kLibrary, kPointwise, kReduction, kContraction, kCopy, kRandom };

enum Trait : uint32_t {
  kNone = 0,
  // The result's shape (or the result itself, a host value) depends on contents: runs at once, a sync point.
  kDataDependent = 1u << 0,
  // As kDataDependent, but only when an index is a boolean or byte mask.
  kDataDependentWithMask = 1u << 1,
  // Scalars fix the result's shape, so their values belong to the call.
  kStaticScalars = 1u << 2,
  // CPU tensors of any size may stand beside device tensors: they are uploaded where the op is recorded.
  kTakesHostTensors = 1u << 3,
  // Host tensors must stay host tensors (lengths, split points): runs at once.
  kNeedsHostTensors = 1u << 4,
  // Results stay on the host.
  kReturnsHostTensors = 1u << 5,
  // Draws from the device generator: (seed, offset) become scalar inputs.
  kRandom = 1u << 6,
  // Reads operands' values to decide whether to raise; must not be dropped as dead code.
  kChecksContents = 1u << 7,
  // May not be tried on stand-in operands (asserts on contents, or is costly there).
  kNoShapeProbe = 1u << 8,
  // The kernel itself asks whether gradients are recorded, and returns more if so.
  kReadsGradMode = 1u << 9,
  // The structured meta function does not tell all of the result (a conjugate bit).
  kMetaIncomplete = 1u << 10,
};

struct Op {
  std::string_view name;              // "aten::add" (every overload) or "aten::add.Tensor" (one)
  OpClass op_class = OpClass::kLibrary;
  uint32_t traits = kNone;
  std::string_view hidden_writes = {};  // argument names written without (a!), separated by commas

  bool has(Trait trait) const { return (traits & trait) != 0; }
};

// The row for an op: the row of the overload if there is one, else that of the name, else the default row.
const Op& find_op(std::string_view qualified_name, std::string_view overload);

const std::vector<Op>& op_table();

}  // namespace sinter::ops
