#include "ops/expression.h"

#include <cctype>
#include <cstdio>
#include <cstdlib>

namespace sinter::ops {
namespace {

// Precedence climbing; the grammar is small enough to need no lexer of its own.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Expression> run() {
    Expression expression = conditional();
    skip();
    if (failed_ || at_ != text_.size())
      return bug("expression \"" + std::string(text_) + "\" does not parse at character " + std::to_string(at_));
    return expression;
  }

 private:
  struct Binary {
    std::string_view token;
    int level;
  };
  // Longer tokens first, so that "<=" is not read as "<".
  static constexpr Binary kBinary[] = {{"<=", 3}, {">=", 3}, {"==", 3}, {"!=", 3}, {"<", 3}, {">", 3}, {"|", 1},
                                       {"^", 1},  {"&", 2},  {"+", 4},  {"-", 4},  {"*", 5}, {"/", 5}};

  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool eat(std::string_view token) {
    skip();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }

  Expression fail() {
    failed_ = true;
    return {};
  }

  static Expression apply(std::string name, std::vector<Expression> operands) {
    return {Expression::Kind::kApply, std::move(name), 0, std::move(operands)};
  }

  Expression conditional() {
    Expression condition = binary(1);
    if (!eat("?")) return condition;
    Expression yes = conditional();
    if (!eat(":")) return fail();
    Expression no = conditional();
    return apply("select", {std::move(condition), std::move(yes), std::move(no)});
  }

  Expression binary(int level) {
    if (level > 5) return unary();
    Expression left = binary(level + 1);
    while (!failed_) {
      std::string_view found;
      skip();
      for (const Binary& candidate : kBinary)
        if (text_.substr(at_, candidate.token.size()) == candidate.token) {
          if (candidate.level == level) found = candidate.token;
          break;
        }
      if (found.empty()) break;
      at_ += found.size();
      Expression right = binary(level + 1);
      if (found == ">" || found == ">=")  // fewer operators for the code generator
        left = apply(found == ">" ? "<" : "<=", {std::move(right), std::move(left)});
      else
        left = apply(std::string(found), {std::move(left), std::move(right)});
    }
    return left;
  }

  Expression unary() {
    if (failed_) return {};
    if (eat("-")) return apply("neg", {unary()});
    skip();
    if (text_.substr(at_, 2) != "!=" && eat("!")) return apply("!", {unary()});
    return primary();
  }

  Expression primary() {
    skip();
    if (at_ >= text_.size()) return fail();
    if (eat("(")) {
      Expression inner = conditional();
      return eat(")") ? inner : fail();
    }
    const char c = text_[at_];
    if (std::isdigit(static_cast<unsigned char>(c)) || c == '.') return number();
    if (std::isalpha(static_cast<unsigned char>(c)) || c == '_') return name();
    return fail();
  }

  Expression number() {
    const std::string rest(text_.substr(at_));
    char* end = nullptr;
    Expression expression{Expression::Kind::kNumber, {}, std::strtod(rest.c_str(), &end), {}};
    at_ += static_cast<size_t>(end - rest.c_str());
    return expression;
  }

  Expression name() {
    const size_t start = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_')) ++at_;
    std::string name(text_.substr(start, at_ - start));
    if (!eat("(")) return {Expression::Kind::kArgument, std::move(name), 0, {}};
    std::vector<Expression> operands;
    if (!eat(")")) {
      do operands.push_back(conditional());
      while (!failed_ && eat(","));
      if (!eat(")")) return fail();
    }
    return apply(std::move(name), std::move(operands));
  }

  std::string_view text_;
  size_t at_ = 0;
  bool failed_ = false;
};

}  // namespace

Result<Expression> parse_expression(std::string_view text) { return Parser(text).run(); }

std::string to_text(const Expression& expression) {
  switch (expression.kind) {
    case Expression::Kind::kArgument:
      return expression.name;
    case Expression::Kind::kNumber: {
      char text[40];
      std::snprintf(text, sizeof text, "%.17g", expression.number);
      return text;
    }
    case Expression::Kind::kApply: {
      std::string out = expression.name + "(";
      for (size_t i = 0; i < expression.operands.size(); ++i)
        out += (i ? ", " : "") + to_text(expression.operands[i]);
      return out + ")";
    }
  }
  return {};
}

}  // namespace sinter::ops
