#include "yaml_tree.h"

#include <algorithm>
#include <optional>
#include <sstream>
#include <utility>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <remora/config/load.h>

#include "text.h"

namespace remora::config {
namespace {

constexpr const char* kNoTags = "tags are not supported: the key decides the type of its value";

// Leaves yaml-cpp's parser; caught in parse_yaml().
struct Refused {
  Place place;
  std::string message;
};

Place place_of(const YAML::Mark& mark) {
  return {static_cast<std::size_t>(std::max(mark.line, 0)) + 1,
          static_cast<std::size_t>(std::max(mark.column, 0)) + 1};
}

Place place_of_offset(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const std::size_t line_end = before.rfind('\n');
  const auto line = static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n')) + 1;
  return {line, line_end == std::string_view::npos ? offset + 1 : offset - line_end};
}

class TreeBuilder final : public YAML::EventHandler {
 public:
  explicit TreeBuilder(std::string_view text) : text_{text} {
    for (std::size_t i = 0; i < text.size(); ++i)
      if (text[i] == '\n') line_starts_.push_back(i + 1);
  }

  [[nodiscard]] bool has_document() const noexcept { return documents_ != 0; }
  YamlNode take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ == 1) return;
    const Place place = place_of(mark);
    // yaml-cpp also begins a document at text that does not fit into the one before.
    const bool marked = text_.substr(line_starts_[place.line - 1]).starts_with("---");
    throw Refused{place, marked ? "a second document: a file has only one"
                                : "does not belong to what is above: check the indentation"};
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_extras(mark, {}, anchor);
    attach({YamlNode::Kind::kNull, place_of(mark), {}, {}, {}});
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override {
    throw Refused{place_of(mark), "aliases are not supported: write the value out"};
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_extras(mark, tag, anchor);
    if (tag == "!") check_quoted(mark);
    attach({YamlNode::Kind::kScalar, place_of(mark), value, {}, {}});
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    open(YamlNode::Kind::kSequence, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    open(YamlNode::Kind::kMap, mark, tag, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  // yaml-cpp gives "?" as the tag of a plain value without a tag, and "!" for a quoted value or the
  // tag "!".
  static void refuse_extras(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (anchor != 0)
      throw Refused{place_of(mark), "anchors are not supported: write the value out"};
    if (!tag.empty() && tag != "?" && tag != "!") throw Refused{place_of(mark), kNoTags};
  }

  // yaml-cpp accepts the end of the file as a closing quote, and so the rest of the file as text.
  void check_quoted(const YAML::Mark& mark) const {
    const Place place = place_of(mark);
    if (place.line > line_starts_.size()) return;
    const std::size_t offset = line_starts_[place.line - 1] + place.column - 1;
    if (offset >= text_.size()) return;
    const char quote = text_[offset];
    if (quote == '!') throw Refused{place, kNoTags};
    if (quote != '"' && quote != '\'') return;  // a block text, | or >
    for (std::size_t i = offset + 1; i < text_.size(); ++i) {
      if (quote == '"' && text_[i] == '\\') {
        ++i;
      } else if (text_[i] == quote) {
        if (quote == '"' || i + 1 == text_.size() || text_[i + 1] != quote) return;
        ++i;
      }
    }
    throw Refused{place, "the quote that opens here is never closed"};
  }

  void open(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag,
            YAML::anchor_t anchor) {
    refuse_extras(mark, tag, anchor);
    if (open_.size() == kDepthMax)
      throw Refused{place_of(mark),
                    "nested too deeply: at most " + std::to_string(kDepthMax) + " levels"};
    open_.push_back({kind, place_of(mark), {}, {}, {}});
  }
  void close() {
    YamlNode node = std::move(open_.back());
    open_.pop_back();
    attach(std::move(node));
  }
  void attach(YamlNode node) {
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    YamlNode& parent = open_.back();
    const bool is_key =
        parent.kind == YamlNode::Kind::kMap && parent.keys.size() == parent.items.size();
    (is_key ? parent.keys : parent.items).push_back(std::move(node));
  }

  std::string_view text_;
  std::vector<std::size_t> line_starts_{0};
  std::size_t documents_ = 0;
  std::vector<YamlNode> open_;
  YamlNode root_;
};

std::optional<Refused> check_bytes(std::string_view text) {
  if (text.size() > kFileBytesMax)
    return Refused{{}, "larger than " + std::to_string(kFileBytesMax / 1024) + "KiB"};
  const std::optional<std::size_t> invalid = find_invalid_utf8(text);
  const auto* const control = std::find_if(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && c != '\t' && c != '\n' && c != '\r') || byte == 0x7f;
  });
  const auto control_offset = static_cast<std::size_t>(control - text.begin());
  if (invalid && *invalid < control_offset)
    return Refused{place_of_offset(text, *invalid), "not UTF-8: save the file as UTF-8"};
  if (control != text.end())
    return Refused{place_of_offset(text, control_offset),
                   "a control character: is this a text file in UTF-8?"};
  return std::nullopt;
}

// yaml-cpp takes such a line as a continuation of the line above, and fails later for another
// reason.
bool is_indented_by_tab(std::string_view text, std::size_t line) {
  for (; line > 1; --line) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return false;
    text.remove_prefix(end + 1);
  }
  const std::size_t content = text.find_first_not_of(" \t");
  return content != std::string_view::npos && text.substr(0, content).find('\t') < content;
}

// yaml-cpp's messages name its own tokens; these name the user's mistake.
std::string syntax_message(std::string_view what) {
  if (what == "illegal map value")
    return "not valid YAML: a ':' that does not fit here; check the indentation, or put the text "
           "in quotes";
  if (what == "end of map not found" || what == "end of sequence not found")
    return "not valid YAML: does not belong to what is above; check the indentation";
  if (what == "end of map flow not found" || what == "end of sequence flow not found")
    return "not valid YAML: a '{' or '[' before this is never closed";
  if (what == "unknown token")
    return "not valid YAML: a value cannot begin like this; put it in quotes";
  return "not valid YAML: " + printable(what);
}

YamlNode build(std::string_view text) {
  std::istringstream stream{std::string{text}};
  YAML::Parser parser{stream};
  TreeBuilder builder{text};
  while (parser.HandleNextDocument(builder)) {
  }
  if (!builder.has_document()) return {};
  return builder.take();
}

}  // namespace

std::string_view describe(YamlNode::Kind kind) noexcept {
  switch (kind) {
    case YamlNode::Kind::kNull: return "nothing";
    case YamlNode::Kind::kScalar: return "text";
    case YamlNode::Kind::kSequence: return "a list";
    case YamlNode::Kind::kMap: return "a map";
  }
  return "something else";
}

tl::expected<YamlNode, Diagnostic> parse_yaml(std::string_view text) {
  const auto fail = [](const Place& place, std::string message) {
    return tl::make_unexpected(Diagnostic{{}, place.line, place.column, {}, std::move(message)});
  };
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // a byte order mark has no meaning
  if (const auto refused = check_bytes(text)) return fail(refused->place, refused->message);
  try {
    return build(text);
  } catch (const Refused& refused) {
    return fail(refused.place, refused.message);
  } catch (const YAML::Exception& exception) {
    const Place place = place_of(exception.mark);
    if (is_indented_by_tab(text, place.line))
      return fail(place, "not valid YAML: a tab in the indentation; use spaces");
    return fail(place, syntax_message(exception.msg));
  }
}

}  // namespace remora::config
