// The embedded page: all files, byte for byte, and nothing that they ask for is missing.

#include "page.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace remora::metrics {
namespace {

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file{path, std::ios::binary};
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

const PageFile* find(std::string_view path) {
  for (const auto& file : page_files())
    if (file.path == path) return &file;
  return nullptr;
}

// What the first group of `pattern` matches, each time.
std::vector<std::string> matches(std::string_view text, const char* pattern) {
  const std::string copy{text};
  const std::regex expression{pattern};
  std::vector<std::string> found;
  for (std::sregex_iterator at{copy.begin(), copy.end(), expression}, end; at != end; ++at)
    found.push_back((*at)[1]);
  return found;
}

TEST(PageFiles, EveryFileOfTheFolderIsThereByteForByte) {
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator{METRICS_PAGE_FOLDER}) {
    const auto name = entry.path().filename().string();
    if (entry.path().extension() == ".png") continue;  // of docs/page.md
    const auto* file = find(name == "index.html" ? "/" : "/page/" + name);
    ASSERT_NE(file, nullptr) << name << ": add it to metrics/CMakeLists.txt";
    EXPECT_TRUE(file->bytes == bytes_of(entry.path())) << name;
    ++files;
  }
  EXPECT_GE(files, 3U);
}

TEST(PageFiles, PathsAreUniqueAndTypesFollowNames) {
  std::set<std::string_view> paths;
  for (const auto& file : page_files()) {
    EXPECT_TRUE(paths.insert(file.path).second) << file.path;
    EXPECT_FALSE(file.bytes.empty()) << file.path;
    const auto* const type = file.path.ends_with(".js")    ? "text/javascript; charset=utf-8"
                             : file.path.ends_with(".css") ? "text/css; charset=utf-8"
                                                           : "text/html; charset=utf-8";
    EXPECT_EQ(file.content_type, type) << file.path;
  }
}

TEST(PageFiles, WhateverAFileAsksForIsOneOfThem) {
  const auto* const index = find("/");
  ASSERT_NE(index, nullptr);
  const auto asked = matches(index->bytes, R"re((?:src|href)="(page/[^"]+)")re");
  EXPECT_GE(asked.size(), 4U);
  for (const auto& path : asked) EXPECT_NE(find("/" + path), nullptr) << path;
  for (const auto& file : page_files()) {
    for (const auto& name : matches(file.bytes, R"re(from '\./([^']+)')re"))
      EXPECT_NE(find("/page/" + name), nullptr) << file.path << " imports " << name;
  }
}

// The browser is told to run no script and to load nothing that did not come as a file from here.
TEST(PageFiles, NothingIsInlineOrElsewhere) {
  const auto* const index = find("/");
  ASSERT_NE(index, nullptr);
  EXPECT_THAT(matches(index->bytes, R"re((<script(?![^>]*\bsrc=)))re"), testing::IsEmpty());
  EXPECT_THAT(matches(index->bytes, R"re((\son[a-z]+=))re"), testing::IsEmpty());
  EXPECT_THAT(matches(index->bytes, R"re((?:src|href)="((?:https?:)?//[^"]*)")re"),
              testing::IsEmpty());
  for (const auto& file : page_files()) {
    if (file.path == "/page/dygraph.js") continue;
    EXPECT_THAT(matches(file.bytes, R"re((innerHTML|outerHTML|insertAdjacentHTML|\beval\())re"),
                testing::IsEmpty())
        << file.path;
  }
}

}  // namespace
}  // namespace remora::metrics
