// Errors as values between the stages of the core; only src/torch turns them into exceptions.
//
// Status is "fine" or an Error (a kind and a message); Result<T> is a T or an Error. Both are [[nodiscard]]. A fine
// Status costs one null pointer. The kinds decide what the receiver does:
//   kUserError    the program asked for something wrong; the message is for its author
//   kUnsupported  we cannot do this; the caller takes another road and counts the reason
//   kBug          one of our own rules is broken; the message is for us
//   kOutOfMemory  the device's memory is exhausted, or its limit is reached
#pragma once

#include <cassert>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace sinter {

enum class ErrorKind : unsigned char { kUserError, kUnsupported, kBug, kOutOfMemory };

constexpr std::string_view name_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUserError:
      return "user_error";
    case ErrorKind::kUnsupported:
      return "unsupported";
    case ErrorKind::kBug:
      return "bug";
    case ErrorKind::kOutOfMemory:
      return "out_of_memory";
  }
  return "bug";
}

struct Error {
  ErrorKind kind;
  std::string message;

  // The same error, with what was being attempted put before its message ("while running aten::add: ...").
  [[nodiscard]] Error within(std::string_view context) const { return {kind, std::string(context) + ": " + message}; }
};

inline Error user_error(std::string message) { return {ErrorKind::kUserError, std::move(message)}; }
inline Error unsupported(std::string message) { return {ErrorKind::kUnsupported, std::move(message)}; }
inline Error bug(std::string message) { return {ErrorKind::kBug, std::move(message)}; }
inline Error out_of_memory(std::string message) { return {ErrorKind::kOutOfMemory, std::move(message)}; }

class [[nodiscard]] Status {
 public:
  Status() = default;  // fine
  Status(Error error) : error_(std::make_shared<const Error>(std::move(error))) {}

  bool ok() const { return error_ == nullptr; }
  explicit operator bool() const { return ok(); }
  const Error& error() const {
    assert(!ok());
    return *error_;
  }
  ErrorKind kind() const { return error().kind; }
  const std::string& message() const { return error().message; }

 private:
  std::shared_ptr<const Error> error_;  // shared: a failed graph hands the same error to each buffer it poisons
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : value_(std::in_place_index<1>, std::move(error)) {}
  Result(const Status& status) : value_(std::in_place_index<1>, status.error()) {}

  bool ok() const { return value_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& operator*() & { return get(); }
  const T& operator*() const& { return const_cast<Result*>(this)->get(); }
  T&& operator*() && { return std::move(get()); }
  T* operator->() { return &get(); }
  const T* operator->() const { return &const_cast<Result*>(this)->get(); }

  const Error& error() const {
    assert(!ok());
    return *std::get_if<1>(&value_);
  }
  ErrorKind kind() const { return error().kind; }
  const std::string& message() const { return error().message; }
  Status status() const { return ok() ? Status() : Status(error()); }

 private:
  T& get() {
    assert(ok());
    return *std::get_if<0>(&value_);
  }
  std::variant<T, Error> value_;
};

}  // namespace sinter

#define SINTER_CONCAT_(a, b) a##b
#define SINTER_CONCAT(a, b) SINTER_CONCAT_(a, b)

// Hands a failure of `expr` (a Status or a Result) on to the caller.
#define SINTER_RETURN_IF_ERROR(expr)                                                                        \
  do {                                                                                                      \
    if (auto sinter_status_ = (expr); !sinter_status_.ok()) return ::sinter::Error(sinter_status_.error()); \
  } while (false)

// Declares or assigns `lhs` from the Result that `expr` gives, or hands its failure on to the caller.
#define SINTER_ASSIGN_OR_RETURN(lhs, expr) SINTER_ASSIGN_OR_RETURN_(SINTER_CONCAT(sinter_result_, __LINE__), lhs, expr)
#define SINTER_ASSIGN_OR_RETURN_(result, lhs, expr)         \
  auto result = (expr);                                     \
  if (!result.ok()) return ::sinter::Error(result.error()); \
  lhs = *std::move(result)
