#include "support/flags.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace sinter {
namespace {

// Each test sees the defaults, whatever ran before.
class FlagsTest : public testing::Test {
 protected:
  void SetUp() override { restore(); }
  void TearDown() override { restore(); }
  static void restore() {
    for (const flags::Info& info : flags::list()) {
      ASSERT_TRUE(flags::set(info.name, info.default_value).ok()) << info.name;
    }
    flags::report_problems([](std::string_view) {});
  }
};

TEST_F(FlagsTest, DefaultsAreTheTables) {
  EXPECT_EQ(flags::engine(), "native");
  EXPECT_FALSE(flags::blocking());
  EXPECT_EQ(flags::max_graph_ops(), 4096);
  EXPECT_EQ(flags::max_graph_bytes(), int64_t{1} << 30);
  EXPECT_EQ(flags::graph_cache_bytes(), 256 << 20);
  EXPECT_EQ(flags::memory_limit(), 0);
  EXPECT_EQ(flags::verify_ir(), flags::kDebugBuild);
  EXPECT_EQ(flags::dump(), "");
}

TEST_F(FlagsTest, SetTakesEveryType) {
  for (const char* yes : {"1", "true", "ON", "Yes", " 1 "}) {
    ASSERT_TRUE(flags::set("BLOCKING", "0").ok());
    EXPECT_TRUE(flags::set("BLOCKING", yes).ok()) << yes;
    EXPECT_TRUE(flags::blocking()) << yes;
  }
  EXPECT_TRUE(flags::set("SINTER_MAX_GRAPH_OPS", "17").ok());
  EXPECT_EQ(flags::max_graph_ops(), 17);
  EXPECT_TRUE(flags::set("DUMP", "/tmp/some where").ok());
  EXPECT_EQ(flags::dump(), "/tmp/some where");
}

TEST_F(FlagsTest, BytesTakeUnits) {
  const std::pair<const char*, int64_t> cases[] = {{"1000", 1000},
                                                   {"64k", 64 << 10},
                                                   {"512M", 512 << 20},
                                                   {"2G", int64_t{2} << 30},
                                                   {"3GiB", int64_t{3} << 30},
                                                   {"1 MB", 1 << 20},
                                                   {"5b", 5},
                                                   {"1T", int64_t{1} << 40}};
  for (const auto& [text, bytes] : cases) {
    EXPECT_TRUE(flags::set("MEMORY_LIMIT", text).ok()) << text;
    EXPECT_EQ(flags::memory_limit(), bytes) << text;
  }
  for (const char* wrong : {"", "M", "-1", "1.5G", "2X", "2Gx", "9000000T", "99999999999999999999"}) {
    EXPECT_FALSE(flags::set("MEMORY_LIMIT", wrong).ok()) << wrong;
  }
  EXPECT_EQ(flags::memory_limit(), int64_t{1} << 40);
}

TEST_F(FlagsTest, BadValuesSayWhatIsAccepted) {
  Status status = flags::set("BLOCKING", "maybe");
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.kind(), ErrorKind::kUserError);
  EXPECT_EQ(status.message(), "SINTER_BLOCKING=\"maybe\" is not valid: it takes 0, 1, true, false, on, off, yes or no");
  status = flags::set("LOG", "loud");
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.message(),
            "SINTER_LOG=\"loud\" is not valid: it takes one of (nothing), off, error, warning, info, debug");
  EXPECT_FALSE(flags::set("MAX_GRAPH_OPS", "0").ok());
  status = flags::set("NO_SUCH", "1");
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("there is no flag \"NO_SUCH\"; the flags are ENGINE, BLOCKING"), std::string::npos);
}

TEST_F(FlagsTest, EnvironmentIsReadAndProblemsAreToldOnce) {
  setenv("SINTER_MAX_GRAPH_OPS", "99", 1);
  setenv("SINTER_BLOCKING", "perhaps", 1);
  setenv("SINTER_DUMP", "", 1);
  flags::read_environment();
  unsetenv("SINTER_MAX_GRAPH_OPS");
  unsetenv("SINTER_BLOCKING");
  unsetenv("SINTER_DUMP");
  EXPECT_EQ(flags::max_graph_ops(), 99);
  EXPECT_FALSE(flags::blocking());
  std::vector<std::string> told;
  auto report = [&](std::string_view text) { told.emplace_back(text); };
  flags::report_problems(report);
  flags::report_problems(report);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_NE(told[0].find("SINTER_BLOCKING=\"perhaps\" is not valid"), std::string::npos);
  EXPECT_NE(told[0].find("; keeping 0"), std::string::npos);
}

TEST_F(FlagsTest, KeyHoldsOnlyWhatChangesPlans) {
  EXPECT_EQ(flags::key_text(), "ENGINE=native;");
  const uint64_t before = flags::version();
  ASSERT_TRUE(flags::set("ENGINE", "reference").ok());
  EXPECT_EQ(flags::key_text(), "ENGINE=reference;");
  EXPECT_GT(flags::version(), before);
}

TEST_F(FlagsTest, JsonIsTyped) {
  const std::string json = flags::to_json();
  EXPECT_EQ(json.substr(0, 2), "[{");
  EXPECT_NE(json.find(R"({"name":"ENGINE","type":"string","default":"native","value":"native","help":")"),
            std::string::npos);
  EXPECT_NE(json.find(R"("name":"MAX_GRAPH_OPS","type":"int","default":4096,"value":4096,)"), std::string::npos);
  EXPECT_NE(json.find(R"("name":"BLOCKING","type":"bool","default":false,"value":false,)"), std::string::npos);
}

}  // namespace
}  // namespace sinter
