#include "ops/expression.h"

#include <gtest/gtest.h>

#include "ops/lowering.h"

namespace sinter::ops {
namespace {

std::string parsed(std::string_view text) {
  const Result<Expression> result = parse_expression(text);
  return result.ok() ? to_text(*result) : "error";
}

TEST(ExpressionTest, BindsAsInC) {
  EXPECT_EQ(parsed("a + b * c - d"), "-(+(a, *(b, c)), d)");
  EXPECT_EQ(parsed("-a * b"), "*(neg(a), b)");
  EXPECT_EQ(parsed("a / b / c"), "/(/(a, b), c)");
  EXPECT_EQ(parsed("x < 0 ? 0 : x"), "select(<(x, 0), 0, x)");
  EXPECT_EQ(parsed("a > b ? a : c >= d ? 1 : 2"), "select(<(b, a), a, select(<=(d, c), 1, 2))");
  EXPECT_EQ(parsed("(a != b) & !c | d"), "|(&(!=(a, b), !(c)), d)");
  EXPECT_EQ(parsed("fma(value * t1, t2, self)"), "fma(*(value, t1), t2, self)");
  EXPECT_EQ(parsed("0.5"), "0.5");
}

TEST(ExpressionTest, NonsenseIsAnError) {
  for (const char* text : {"", "a +", "(a", "f(a", "a b", "a ? b", "1 +* 2", ")", "a @ b"}) EXPECT_EQ(parsed(text), "error") << text;
}

TEST(ExpressionTest, EveryRowOfTheTablesParses) {
  for (const Lowering& row : lowering_table()) EXPECT_TRUE(parse_expression(row.expression).ok()) << row.op;
  for (const Macro& macro : macro_table()) EXPECT_TRUE(parse_expression(macro.expression).ok()) << macro.name;
}

TEST(LoweringTest, InPlaceFormsAreDerived) {
  ASSERT_EQ(lowerings_of("aten::add_.Tensor").size(), 1u);
  EXPECT_TRUE(lowerings_of("aten::add_.Tensor")[0].in_place);
  EXPECT_FALSE(lowerings_of("aten::add.Tensor")[0].in_place);
  EXPECT_TRUE(lowerings_of("aten::_foreach_mul_.Scalar")[0].in_place);
  EXPECT_TRUE(lowerings_of("aten::copy_")[0].in_place);
  EXPECT_EQ(lowerings_of("aten::gelu").size(), 2u);  // one for each approximation
  EXPECT_TRUE(lowerings_of("aten::mm").empty());
}

TEST(LoweringTest, MacrosAreExpanded) {
  EXPECT_EQ(to_text(lowerings_of("aten::sigmoid")[0].expression), "/(1, +(1, exp(neg(self))))");
  EXPECT_TRUE(lowerings_of("aten::sigmoid")[0].needs_function);
  EXPECT_FALSE(lowerings_of("aten::add.Tensor")[0].needs_function);
}

}  // namespace
}  // namespace sinter::ops
