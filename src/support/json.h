// A small JSON writer: appends to one string, puts the commas itself, escapes strings.
//
// Calls must nest properly (debug builds assert it). The text is always valid UTF-8: bytes of a string that are not are
// replaced by U+FFFD, for file names and messages of the system may hold anything and Python's reader would refuse the
// whole. NaN and infinities, which JSON lacks, are written as null. It does not read.
#pragma once

#include <cassert>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace sinter {

class JsonWriter {
 public:
  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }

  JsonWriter& key(std::string_view name) {
    separate();
    append_string(name);
    text_ += ':';
    after_key_ = true;
    return *this;
  }

  JsonWriter& value(std::string_view v) {
    separate();
    append_string(v);
    return *this;
  }
  JsonWriter& value(const char* v) { return value(std::string_view(v)); }
  JsonWriter& value(bool v) { return append(v ? "true" : "false"); }
  template <std::integral T>
  JsonWriter& value(T v) {
    return append_number(v);
  }
  JsonWriter& value(double v) { return std::isfinite(v) ? append_number(v) : null(); }
  JsonWriter& null() { return append("null"); }

  // Text that is JSON already.
  JsonWriter& raw(std::string_view json) { return append(json); }

  template <class T>
  JsonWriter& field(std::string_view name, const T& v) {
    return key(name).value(v);
  }

  std::string take() {
    assert(depth_ == 0 && !after_key_);
    return std::exchange(text_, {});
  }

 private:
  JsonWriter& open(char bracket) {
    separate();
    text_ += bracket;
    ++depth_;
    return *this;
  }
  JsonWriter& close(char bracket) {
    assert(depth_ > 0 && !after_key_);
    --depth_;
    text_ += bracket;
    return *this;
  }
  void separate() {
    if (!std::exchange(after_key_, false) && !text_.empty() && text_.back() != '{' && text_.back() != '[') {
      text_ += ',';
    }
  }
  JsonWriter& append(std::string_view json) {
    separate();
    text_ += json;
    return *this;
  }
  template <class T>
  JsonWriter& append_number(T v) {
    char digits[32];
    auto end = std::to_chars(digits, digits + sizeof digits, v).ptr;
    return append({digits, static_cast<size_t>(end - digits)});
  }

  // Length of the valid UTF-8 sequence at s[0], or 0.
  static size_t sequence_length(std::string_view s) {
    auto byte = [&](size_t i) { return i < s.size() ? static_cast<unsigned char>(s[i]) : 0u; };
    const unsigned b0 = byte(0), b1 = byte(1);
    auto tail = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
    if (b0 < 0x80) return 1;
    if (b0 >= 0xC2 && b0 <= 0xDF) return tail(1) ? 2 : 0;
    if (b0 >= 0xE0 && b0 <= 0xEF) {
      const bool overlong = b0 == 0xE0 && b1 < 0xA0, surrogate = b0 == 0xED && b1 > 0x9F;
      return tail(1) && tail(2) && !overlong && !surrogate ? 3 : 0;
    }
    if (b0 >= 0xF0 && b0 <= 0xF4) {
      const bool overlong = b0 == 0xF0 && b1 < 0x90, too_large = b0 == 0xF4 && b1 > 0x8F;
      return tail(1) && tail(2) && tail(3) && !overlong && !too_large ? 4 : 0;
    }
    return 0;
  }

  void append_string(std::string_view s) {
    static constexpr char kHex[] = "0123456789abcdef";
    text_ += '"';
    while (!s.empty()) {
      const size_t length = sequence_length(s);
      if (length == 0) {
        text_ += "\xEF\xBF\xBD";
        s.remove_prefix(1);
        continue;
      }
      const char c = s[0];
      if (length > 1) {
        text_ += s.substr(0, length);
      } else if (c == '"' || c == '\\') {
        (text_ += '\\') += c;
      } else if (c == '\n') {
        text_ += "\\n";
      } else if (c == '\t') {
        text_ += "\\t";
      } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
        ((text_ += "\\u00") += kHex[(c >> 4) & 15]) += kHex[c & 15];
      } else {
        text_ += c;
      }
      s.remove_prefix(length);
    }
    text_ += '"';
  }

  std::string text_;
  int depth_ = 0;
  bool after_key_ = false;
};

}  // namespace sinter
