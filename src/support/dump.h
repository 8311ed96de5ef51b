// SINTER_DUMP: stages of the compiler as files in a folder.
#pragma once

#include <string>
#include <string_view>

namespace sinter {

// Writes `text` to <folder>/<stage>-<number>.txt, numbered per process in order. Does nothing without the flag; ask
// flags::dump() first where making the text costs something.
void dump_text(std::string_view stage, const std::string& text);

}  // namespace sinter
