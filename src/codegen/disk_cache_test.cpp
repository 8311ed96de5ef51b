#include "codegen/disk_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

namespace sinter::codegen {
namespace {

namespace fs = std::filesystem;

class DiskCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/sinter-cache-XXXXXX";
    base = mkdtemp(pattern);
    folder = base + "/a/kernels";
  }
  void TearDown() override { fs::remove_all(base); }
  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder)) found.push_back(entry.path());
    return found;
  }
  std::string base, folder;
};

TEST_F(DiskCacheTest, GivesBackWhatWasStored) {
  const std::string object("\0binary\n\xff", 9);
  DiskCache(folder, 1 << 20).store("key", object);
  DiskCache other(folder, 1 << 20);  // as another process
  EXPECT_EQ(other.find("key"), object);
  EXPECT_EQ(other.find("another key"), std::nullopt);
  EXPECT_EQ(files().size(), 1u);  // nothing left aside
}

TEST_F(DiskCacheTest, ADamagedFileIsAMiss) {
  const std::string object(1000, 'x');
  DiskCache cache(folder, 1 << 20);
  cache.store("key", object);
  const fs::path path = files()[0];
  std::string bytes;
  {
    std::ifstream in(path, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  for (size_t at = 0; at < bytes.size(); at += 7) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    std::ofstream(path, std::ios::binary) << damaged;
    const auto found = cache.find("key");
    EXPECT_TRUE(!found || *found == object) << at;  // a digit's case in the header changes nothing
  }
  for (size_t size : {size_t{0}, size_t{10}, bytes.size() / 2, bytes.size() - 1}) {
    std::ofstream(path, std::ios::binary) << bytes.substr(0, size);
    EXPECT_EQ(cache.find("key"), std::nullopt) << size;
  }
  cache.store("key", object);
  EXPECT_EQ(cache.find("key"), object);
}

TEST_F(DiskCacheTest, WhatOthersCanWriteIsNotRun) {
  DiskCache(folder, 1 << 20).store("key", "object");
  chmod(files()[0].c_str(), 0666);
  EXPECT_EQ(DiskCache(folder, 1 << 20).find("key"), std::nullopt);
  chmod(files()[0].c_str(), 0600);
  EXPECT_EQ(DiskCache(folder, 1 << 20).find("key"), "object");
  chmod(folder.c_str(), 0777);
  DiskCache cache(folder, 1 << 20);
  EXPECT_EQ(cache.find("key"), std::nullopt);
  EXPECT_NE(cache.problem().find("somebody else"), std::string::npos);
}

TEST_F(DiskCacheTest, TheOldestGoFirst) {
  const std::string object(1000, 'x');
  for (int i = 0; i < 20; ++i) {
    DiskCache(folder, 1 << 20).store("key" + std::to_string(i), object);
    for (const fs::path& path : files())
      fs::last_write_time(path, fs::last_write_time(path) - std::chrono::seconds(10));
  }
  DiskCache(folder, 12'000).store("new", object);
  DiskCache cache(folder, 1 << 20);
  EXPECT_EQ(cache.find("key0"), std::nullopt);
  EXPECT_EQ(cache.find("key19"), object);
  EXPECT_EQ(cache.find("new"), object);
  EXPECT_LE(files().size(), 12u);
}

TEST_F(DiskCacheTest, ManyWriteAtOnce) {
  const std::string object(5000, 'y');
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      DiskCache cache(folder, 1 << 20);
      for (int i = 0; i < 50; ++i) {
        cache.store("key", object);
        EXPECT_EQ(cache.find("key"), object);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(files().size(), 1u);
}

}  // namespace
}  // namespace sinter::codegen
