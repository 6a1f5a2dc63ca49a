// The folder's examples load, and its pages agree with the code.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>
#include <string>

#include <remora/config/describe.h>
#include <remora/config/load.h>

namespace remora::config {
namespace {

std::filesystem::path folder() { return REMORA_CONFIG_DIR; }

std::string read(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream{path}.rdbuf();
  return text.str();
}

// The text between two marks, which stay outside.
struct Section {
  std::size_t begin;
  std::size_t end;
};
Section section(const std::string& page, const std::string& text, const std::string& name) {
  const std::string begin = std::string{"<!-- "} + name + ": begin -->\n";
  const std::size_t start = text.find(begin);
  const std::size_t end = text.find(std::string{"<!-- "} + name + ": end -->");
  if (start == std::string::npos || end == std::string::npos) {
    ADD_FAILURE() << "config/docs/" << page << " has lost its marks around " << name;
    return {0, 0};
  }
  return {start + begin.size(), end};
}

// Writes a file only where that changes it: what is built from it stays as it is.
void update(const std::filesystem::path& path, const std::string& text) {
  if (read(path) != text) std::ofstream{path} << text;
}

// Compares a section of a page with the text that the code prints; REMORA_UPDATE_DOCS=1 writes it.
void expect_in_page(const std::string& page, const std::string& name, const std::string& expected) {
  const std::filesystem::path path = folder() / "docs" / page;
  const std::string text = read(path);
  const Section place = section(page, text, name);
  if (std::getenv("REMORA_UPDATE_DOCS") != nullptr) {
    update(path, text.substr(0, place.begin) + expected + text.substr(place.end));
    return;
  }
  EXPECT_EQ(text.substr(place.begin, place.end - place.begin), expected)
      << "run this test with REMORA_UPDATE_DOCS=1";
}

TEST(Documents, KeyTableIsWhatTheParserChecks) {
  expect_in_page("keys.md", "keys", reference_markdown());
}

TEST(Documents, ReloadTableIsWhatTheServerGoesBy) {
  expect_in_page("keys.md", "reload", reload_markdown());
}

// The same for a file that the code prints as a whole.
void expect_file(const std::filesystem::path& path, const std::string& expected) {
  if (std::getenv("REMORA_UPDATE_DOCS") != nullptr) {
    update(path, expected);
    return;
  }
  EXPECT_EQ(read(path), expected) << path << ": run this test with REMORA_UPDATE_DOCS=1";
}

TEST(Documents, ManualPageHasTheKeys) {
  const std::filesystem::path path = folder().parent_path() / "apps/man/remora.yaml.5.scd";
  const std::string text = read(path);
  const std::string begin = "; keys: begin\n";
  const std::size_t start = text.find(begin);
  const std::size_t end = text.find("; keys: end\n");
  ASSERT_TRUE(start != std::string::npos && end != std::string::npos) << path;
  expect_file(path, text.substr(0, start + begin.size()) + reference_manual() + text.substr(end));
}

TEST(Documents, JsonSchemaIsMadeFromTheTable) {
  expect_file(folder() / "docs/server.schema.json", reference_json_schema());
}

TEST(Documents, DiagnosticsExampleIsTrue) {
  const std::string text = read(folder() / "docs/diagnostics.md");
  const Section yaml = section("diagnostics.md", text, "wrong");
  std::string file = text.substr(yaml.begin, yaml.end - yaml.begin);
  ASSERT_TRUE(file.starts_with("```yaml\n") && file.ends_with("```\n"));
  file = file.substr(8, file.size() - 12);
  const auto config = parse_server(file, "server.yaml");
  ASSERT_FALSE(config);
  expect_in_page("diagnostics.md", "faults",
                 std::string{"```text\n"}.append(config.error().to_string()).append("```\n"));
}

TEST(Examples, AllLoad) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator{folder() / "examples"}) {
    if (entry.path().extension() != ".yaml") continue;
    const auto config = load_server(entry.path().string());
    EXPECT_TRUE(config) << config.error();
    ++count;
  }
  EXPECT_GE(count, 2U);
}

TEST(Examples, QuickstartIsForThisHostOnly) {
  const auto config = load_server((folder() / "examples/quickstart.yaml").string());
  ASSERT_TRUE(config) << config.error();
  EXPECT_TRUE(is_loopback(config->listen.address));
  EXPECT_EQ(config->listen.port, 7471);
  ASSERT_EQ(config->regions.size(), 1U);
  EXPECT_EQ(config->regions[0].name, "demo");
  EXPECT_TRUE(config->regions[0].shm);
  EXPECT_EQ(config->metrics.address, "127.0.0.1:9471");
}

TEST(Examples, ServerShowsEveryKey) {
  std::ostringstream shown;
  shown << std::ifstream{folder() / "examples/server.yaml"}.rdbuf();
  const std::string text = shown.str();
  const auto config = load_server((folder() / "examples/server.yaml").string());
  ASSERT_TRUE(config) << config.error();
  for (const KeyDescription& key : server_keys()) {
    if (key.type == KeyType::kMap || key.type == KeyType::kList) continue;
    std::string path = key.path;
    if (path.starts_with("regions[]")) path = "regions[0]" + path.substr(9);
    // What is not set by default stands there as a comment.
    const bool keys = path.starts_with("clients[]") || path.find(".access[]") != path.npos ||
                      path.starts_with("rdma.") || path.starts_with("cluster.");
    const bool set = !keys && (key.required || !key.standard.empty() || key.path == "auth");
    const std::string comment =
        (keys ? "" : "# ") + key.path.substr(key.path.rfind('.') + 1) + ": ";
    if (set)
      EXPECT_TRUE(config->origins.contains(path)) << path;
    else
      EXPECT_THAT(text, ::testing::HasSubstr(comment)) << path;
  }
}

}  // namespace
}  // namespace remora::config
