// What is wrong with the text as YAML: one diagnostic, whatever else the file says.

#include <gtest/gtest.h>
#include <string>

#include "config_testing.h"

namespace remora::config {
namespace {

using testing::faults;
using testing::parsed;
using testing::with_pool;

TEST(YamlSyntax, FirstErrorStandsAlone) {
  EXPECT_EQ(faults("colour: red\nlisten: {port: [\nprot: 1\n"),
            "f.yaml:4:1: not valid YAML: a '{' or '[' before this is never closed\n");
}

TEST(YamlSyntax, ColonThatDoesNotFit) {
  EXPECT_EQ(faults("pool:\n  size: 1MiB\n   piece: 4KiB\n"),
            "f.yaml:3:9: not valid YAML: a ':' that does not fit here; check the indentation, or "
            "put the text in quotes\n");
  EXPECT_EQ(faults("log: level: info\n"),
            "f.yaml:1:11: not valid YAML: a ':' that does not fit here; check the indentation, or "
            "put the text in quotes\n");
}

TEST(YamlSyntax, IndentationThatDoesNotFit) {
  EXPECT_EQ(
      faults("pool:\n    size: 1MiB\n  piece: 4KiB\n"),
      "f.yaml:3:3: not valid YAML: does not belong to what is above; check the indentation\n");
  EXPECT_EQ(faults("- a\npool: {size: 1MiB}\n"),
            "f.yaml:2:1: does not belong to what is above: check the indentation\n");
}

TEST(YamlSyntax, TabInTheIndentation) {
  EXPECT_EQ(faults("pool:\n\tsize: 1MiB\n"),
            "f.yaml:2:6: not valid YAML: a tab in the indentation; use spaces\n");
}

TEST(YamlSyntax, CharacterThatNeedsQuotes) {
  EXPECT_EQ(faults("log:\n  level: @info\n"),
            "f.yaml:2:10: not valid YAML: a value cannot begin like this; put it in quotes\n");
}

TEST(YamlSyntax, UnknownEscape) {
  EXPECT_EQ(faults("auth: \"no\\qne\"\n"),
            "f.yaml:1:12: not valid YAML: unknown escape character: q\n");
}

TEST(YamlSyntax, QuoteThatIsNeverClosed) {
  EXPECT_EQ(faults("auth: \"none\nlog: {level: info}\n"),
            "f.yaml:1:7: the quote that opens here is never closed\n");
  EXPECT_EQ(faults("auth: 'none\nlog: {level: info}\n"),
            "f.yaml:1:7: the quote that opens here is never closed\n");
  EXPECT_EQ(faults("auth: 'it''s\n"), "f.yaml:1:7: the quote that opens here is never closed\n");
  EXPECT_EQ(faults("auth: \"none\\\"\n"),
            "f.yaml:1:7: the quote that opens here is never closed\n");
}

TEST(YamlSyntax, QuotesThatAreClosed) {
  EXPECT_EQ(faults("\"pool\": {'size': \"1MiB\"}\nauth: 'none'"), "no fault");
  EXPECT_EQ(faults(with_pool("auth: 'it''s'\n")),
            "f.yaml:2:7: auth: must be none or keys, found 'it's'\n");
  EXPECT_EQ(faults(with_pool("auth: \"a\\\"\\x41\"\n")),
            "f.yaml:2:7: auth: must be none or keys, found 'a\"A'\n");
}

TEST(YamlDocuments, NoneIsAFault) {
  for (const char* const text : {"", "\n\n", "# only a comment\n", "---\n", "---\n...\n", "~\n"})
    EXPECT_EQ(faults(text), "f.yaml: says nothing: at least pool.size is required\n") << text;
}

TEST(YamlDocuments, TwoAreAFault) {
  EXPECT_EQ(faults("pool: {size: 1MiB}\n---\npool: {size: 2MiB}\n"),
            "f.yaml:2:1: a second document: a file has only one\n");
  EXPECT_EQ(faults("pool: {size: 1MiB}\n---\n"),
            "f.yaml:2:1: a second document: a file has only one\n");
}

TEST(YamlDocuments, MarkersAroundOneAreFine) {
  EXPECT_EQ(faults("%YAML 1.2\n---\npool: {size: 1MiB}\n...\n"), "no fault");
}

TEST(YamlFeatures, AnchorsAliasesAndTagsAreRefused) {
  EXPECT_EQ(faults("pool: &p {size: 1MiB}\n"),
            "f.yaml:1:7: anchors are not supported: write the value out\n");
  EXPECT_EQ(faults("auth: &a none\nlog: {level: *a}\n"),
            "f.yaml:1:7: anchors are not supported: write the value out\n");
  EXPECT_EQ(faults("auth: &a\n"), "f.yaml:1:7: anchors are not supported: write the value out\n");
  EXPECT_EQ(faults("listen: {port: !!int 7471}\n"),
            "f.yaml:1:16: tags are not supported: the key decides the type of its value\n");
  EXPECT_EQ(faults("listen: {port: ! 7471}\n"),
            "f.yaml:1:16: tags are not supported: the key decides the type of its value\n");
  EXPECT_EQ(faults("listen: !map {port: 7471}\n"),
            "f.yaml:1:9: tags are not supported: the key decides the type of its value\n");
}

TEST(YamlFeatures, MergeKeyIsUnknown) {
  EXPECT_EQ(faults(with_pool("listen:\n  <<: {port: 1}\n")),
            "f.yaml:3:3: listen.<<: unknown key: valid here are address and port\n");
}

TEST(YamlBytes, NotUtf8) {
  EXPECT_EQ(faults("# caf\xc3\xa9\npool: {size: 1MiB} # \xe9\n"),
            "f.yaml:2:22: not UTF-8: save the file as UTF-8\n");
}

TEST(YamlBytes, ControlCharacters) {
  EXPECT_EQ(faults(std::string_view{"pool:\n  \0", 9}),
            "f.yaml:2:3: a control character: is this a text file in UTF-8?\n");
  EXPECT_EQ(faults("\x7f"
                   "ELF\x02\xff"),
            "f.yaml:1:1: a control character: is this a text file in UTF-8?\n");
  EXPECT_EQ(faults(std::string_view{"\xff\xfep\0o\0", 6}),
            "f.yaml:1:1: not UTF-8: save the file as UTF-8\n");  // UTF-16
}

TEST(YamlBytes, ByteOrderMarkAndCarriageReturnsAreFine) {
  EXPECT_EQ(faults("\xef\xbb\xbfpool: {size: 1MiB}\n"), "no fault");
  EXPECT_EQ(faults("pool:\r\n  size: 1MiB\r\nauth: none\r\n"), "no fault");
  EXPECT_EQ(faults("pool:\r\n  size: 1MiB\r\nauth: secret\r\n"),
            "f.yaml:3:7: auth: must be none or keys, found 'secret'\n");
}

TEST(YamlBytes, ColumnsCountBytes) {
  EXPECT_EQ(faults("listen: {address: \"\xc3\xa9\", prot: 1}\npool: {size: 1MiB}\n"),
            "f.yaml:1:19: listen.address: must be an IPv4 or IPv6 address or a host name, found "
            "'\xc3\xa9'\n"
            "f.yaml:1:25: listen.prot: unknown key: did you mean 'port'?\n");
}

TEST(YamlBounds, LargestFile) {
  std::string text = with_pool("#");
  text.resize(kFileBytesMax, '#');
  EXPECT_EQ(faults(text), "no fault");
  text.push_back('#');
  EXPECT_EQ(faults(text), "f.yaml: larger than 8192KiB\n");
}

TEST(YamlBounds, Nesting) {
  const std::string message = "nested too deeply: at most 32 levels\n";
  // Where a bracket may still turn out to be a key, yaml-cpp counts a map of one pair around it.
  EXPECT_EQ(faults(std::string(33, '[')), "f.yaml:1:17: " + message);
  EXPECT_EQ(faults(std::string(100'000, '[')), "f.yaml:1:17: " + message);
  EXPECT_EQ(faults(std::string(100'000, '{')), "f.yaml:1:32: " + message);
  std::string dashes;
  for (std::size_t i = 0; i < 100'000; ++i) dashes.append("- ");
  EXPECT_EQ(faults(dashes), "f.yaml:1:65: " + message);
  EXPECT_EQ(
      faults(std::string(32, '[') + std::string(32, ']')),
      "f.yaml:1:1: expected a map with the keys listen, transports, rdma, pool, regions, auth, "
      "clients, limits, log, metrics and cluster, found a list\n");
}

// Inputs that took readers of YAML long before. The limit is the test's own time-out.
TEST(YamlBounds, LargeFilesWithManyNodesAreRead) {
  std::string quotes = "regions: [";
  while (quotes.size() < 450'000) quotes.append("\"a\",\n");
  EXPECT_TRUE(faults(quotes + "]").starts_with("f.yaml:1:1: pool.size: required"));
  std::string unknown;
  for (int i = 0; i < 10'000; ++i) unknown.append("key").append(std::to_string(i)).append(": 1\n");
  EXPECT_TRUE(faults(unknown).ends_with("and 9901 more\n"));
}

TEST(YamlRoot, MustBeAMap) {
  EXPECT_EQ(
      faults("just text\n"),
      "f.yaml:1:1: expected a map with the keys listen, transports, rdma, pool, regions, auth, "
      "clients, limits, log, metrics and cluster, found text\n");
}

TEST(YamlStyles, BlockFlowAndFoldedAreTheSame) {
  const ServerConfig block = parsed("pool:\n  size: 1MiB\nregions:\n- name: a\n  size: 4KiB\n");
  const ServerConfig flow = parsed("{pool: {size: 1MiB}, regions: [{name: a, size: 4KiB}]}");
  EXPECT_EQ(block.pool, flow.pool);
  EXPECT_EQ(block.regions, flow.regions);
  EXPECT_EQ(faults(with_pool("auth: >-\n  none\n")), "no fault");
}

}  // namespace
}  // namespace remora::config
