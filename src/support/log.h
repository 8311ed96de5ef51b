// Log messages of the core, handed to whoever listens; it never prints by itself unless the LOG flag asks for it.
//
// A message at or above the threshold goes to the sink when the host set one, else to stderr when SINTER_LOG names a
// level, else nowhere. The threshold is SINTER_LOG, or "warning" when that is empty. Safe from any thread; the sink is
// called without a lock held and may be called by several threads at once. Guard costly messages by enabled().
#pragma once

#include <functional>
#include <string_view>

namespace sinter::log {

enum class Level : unsigned char { kDebug, kInfo, kWarning, kError, kOff };

std::string_view name_of(Level level);

using Sink = std::function<void(Level, std::string_view)>;

// Replaces the sink; an empty one removes it.
void set_sink(Sink sink);

// True when a message of this level would reach someone. A few nanoseconds.
bool enabled(Level level);

void write(Level level, std::string_view message);

inline void debug(std::string_view message) { write(Level::kDebug, message); }
inline void info(std::string_view message) { write(Level::kInfo, message); }
inline void warning(std::string_view message) { write(Level::kWarning, message); }
inline void error(std::string_view message) { write(Level::kError, message); }

}  // namespace sinter::log
