#include "support/dump.h"

#include <atomic>
#include <cstdio>

#include "support/flags.h"
#include "support/log.h"

namespace sinter {

void dump_text(std::string_view stage, const std::string& text) {
  const std::string folder = flags::dump();
  if (folder.empty()) return;
  static std::atomic<unsigned> number{0};
  const std::string path = folder + "/" + std::string(stage) + "-" + std::to_string(number++) + ".txt";
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (!file) return log::warning("SINTER_DUMP: cannot write " + path);
  std::fwrite(text.data(), 1, text.size(), file);
  std::fclose(file);
}

}  // namespace sinter
