#pragma once

/// Parses YAML text into a tree with all data that the checker needs: duplicate keys, their order
/// and the place of every node. Only yaml_tree.cc uses yaml-cpp.
///
/// yaml-cpp's own nodes drop duplicate keys, read the first document only and resolve aliases, so a
/// few kilobytes can grow without bound; its event interface, used here, reports all of that.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include <remora/config/diagnostics.h>

namespace remora::config {

/// Line and column from 1; the column counts bytes.
struct Place {
  std::size_t line = 0;
  std::size_t column = 0;
};

struct YamlNode {
  enum class Kind : std::uint8_t { kNull, kScalar, kSequence, kMap };

  Kind kind = Kind::kNull;
  Place place;
  std::string scalar;           ///< kScalar: the text, quotes and escapes resolved
  std::vector<YamlNode> keys;   ///< kMap: parallel to items
  std::vector<YamlNode> items;  ///< kMap: values; kSequence: elements
};

/// "text", "a list", ... for messages.
std::string_view describe(YamlNode::Kind kind) noexcept;

/// The one document in `text`. The diagnostic has no file name yet.
/// Fails on: more than kFileBytesMax bytes, malformed UTF-8, control characters, syntax errors,
/// quotes that are not closed, nesting over kDepthMax, anchors, aliases, tags, no document or two.
tl::expected<YamlNode, Diagnostic> parse_yaml(std::string_view text);

}  // namespace remora::config
