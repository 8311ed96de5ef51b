#include "graph/graph.h"

namespace sinter::graph {
namespace {

std::string value_text(const Value& value) {
  return "%" + std::to_string(value.buffer) + "." + std::to_string(value.version);
}

}  // namespace

std::string to_text(const Graph& graph) {
  std::string out = "graph {\n";
  for (size_t b = 0; b < graph.buffers.size(); ++b) {
    const BufferInfo& buffer = graph.buffers[b];
    if (buffer.origin == Origin::kResult && !buffer.live) continue;
    out += "  buffer %" + std::to_string(b);
    out += buffer.origin == Origin::kContents ? " contents"
           : buffer.origin == Origin::kEmpty  ? " empty"
                                              : " result";
    out += buffer.live ? " live\n" : "\n";
  }
  for (const Node& node : graph.nodes) {
    const Call& call = *node.call;
    out += "  ";
    bool first = true;
    size_t next = 0;
    for (const TensorMeta& meta : call.results) {
      if (!first) out += ", ";
      first = false;
      if (meta.defined)
        out += value_text({node.results[next++], 0}) + ":" + to_text(meta);
      else
        out += "none";
    }
    for (const Definition& definition : node.definitions) {
      if (!first) out += ", ";
      first = false;
      out += value_text(definition.value) + (definition.whole ? " whole" : "");
    }
    if (!first) out += " = ";
    out += call.name + "(";
    for (size_t k = 0; k < node.uses.size(); ++k) {
      if (k) out += ", ";
      out += value_text(node.uses[k].value) + ":" + to_text(call.operands[k].meta);
      if (node.uses[k].offset) out += "@" + std::to_string(node.uses[k].offset);
    }
    out += ")";
    if (!call.attributes.empty()) out += " {" + call.attributes + "}";
    if (!call.scalars.empty()) {
      out += " scalars";
      for (size_t s = 0; s < call.scalars.size(); ++s)
        out += " #" + std::to_string(node.first_scalar + s);
    }
    out += '\n';
  }
  return out + "}\n";
}

}  // namespace sinter::graph
