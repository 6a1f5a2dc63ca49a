#include "cli/bench_mix.h"

#include <algorithm>
#include <optional>

#include <remora/config/nearest.h>
#include <remora/config/units.h>
#include <remora/engine/queue.h>

namespace remora::apps {
namespace {

constexpr std::array<std::string_view, kBenchOpCount> kOpNames{"read", "write", "cas", "add"};

std::string quoted(std::string_view text) { return std::string{"'"}.append(text).append("'"); }

/// The elements between commas, or a sentence: an element is empty, or there are too many.
tl::expected<std::vector<std::string_view>, std::string> elements_of(std::string_view text,
                                                                     std::string_view example) {
  std::vector<std::string_view> elements;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    elements.push_back(text.substr(begin, comma - begin));
    begin = comma + 1;
  }
  for (const std::string_view element : elements)
    if (element.empty())
      return tl::make_unexpected((elements.size() == 1
                                      ? std::string{"nothing is given"}
                                      : "an element of " + quoted(text) + " is empty") +
                                 "; write it like " + std::string{example});
  if (elements.size() > kBenchListMax)
    return tl::make_unexpected(std::to_string(elements.size()) +
                               " elements are too many; at most " + std::to_string(kBenchListMax));
  return elements;
}

tl::expected<BenchOp, std::string> op_of(std::string_view name) {
  const auto* const found = std::find(kOpNames.begin(), kOpNames.end(), name);
  if (found != kOpNames.end()) return static_cast<BenchOp>(found - kOpNames.begin());
  const std::string_view near = config::nearest(name, kOpNames);
  return tl::make_unexpected(quoted(name) + " is no operation; expected read, write, cas or add" +
                             (near.empty() ? "" : "; did you mean " + quoted(near) + "?"));
}

/// One element of a mix; the weight is 0 if none is given.
tl::expected<BenchMix::Share, std::string> share_of(std::string_view element) {
  const std::size_t colon = element.find(':');
  const auto op = op_of(element.substr(0, colon));
  if (!op) return tl::make_unexpected(op.error());
  if (colon == std::string_view::npos) return BenchMix::Share{*op, 0};
  const auto weight = config::parse_number(element.substr(colon + 1));
  if (!weight || *weight == 0 || *weight > BenchMix::kWeightMax)
    return tl::make_unexpected(quoted(element.substr(colon + 1)) + " is no weight of " +
                               std::string{to_string(*op)} + "; expected 1 to " +
                               std::to_string(BenchMix::kWeightMax) + ", as in read:70,write:30");
  return BenchMix::Share{*op, static_cast<std::uint32_t>(*weight)};
}

}  // namespace

std::string_view to_string(BenchOp op) noexcept { return kOpNames[static_cast<std::size_t>(op)]; }

BenchMix::BenchMix(std::vector<Share> shares) : shares_{std::move(shares)} {
  std::uint64_t sum = 0;
  for (const Share& share : shares_) below_.push_back(sum += share.weight);
}

tl::expected<BenchMix, std::string> BenchMix::parse(std::string_view text) {
  const auto elements = elements_of(text, "read or read:70,write:30");
  if (!elements) return tl::make_unexpected(elements.error());
  std::vector<Share> shares;
  for (const std::string_view element : *elements) {
    const auto share = share_of(element);
    if (!share) return tl::make_unexpected(share.error());
    for (const Share& other : shares)
      if (other.op == share->op)
        return tl::make_unexpected(std::string{to_string(share->op)} + " stands twice in " +
                                   quoted(text) + "; add up its weights");
    shares.push_back(*share);
  }
  const auto bare = std::count_if(shares.begin(), shares.end(),
                                  [](const Share& share) { return share.weight == 0; });
  if (bare != 0 && bare != static_cast<std::ptrdiff_t>(shares.size()))
    return tl::make_unexpected("in " + quoted(text) +
                               " some operations have a weight and some have none; give it to all "
                               "or to none, as in read:70,write:30");
  if (bare != 0)
    for (Share& share : shares) share.weight = 1;
  return BenchMix{std::move(shares)};
}

std::string BenchMix::text() const {
  if (shares_.size() == 1) return std::string{to_string(shares_.front().op)};
  std::string text;
  for (const Share& share : shares_) {
    if (!text.empty()) text += ',';
    text.append(to_string(share.op)).append(":").append(std::to_string(share.weight));
  }
  return text;
}

bool BenchMix::contains(BenchOp op) const noexcept {
  return std::any_of(shares_.begin(), shares_.end(),
                     [op](const Share& share) { return share.op == op; });
}

bool BenchMix::any_atomic() const noexcept {
  return std::any_of(shares_.begin(), shares_.end(),
                     [](const Share& share) { return is_atomic(share.op); });
}

bool BenchMix::only_atomic() const noexcept {
  return std::all_of(shares_.begin(), shares_.end(),
                     [](const Share& share) { return is_atomic(share.op); });
}

tl::expected<std::vector<std::uint64_t>, std::string> parse_size_list(std::string_view text) {
  const auto elements = elements_of(text, "4KiB or 64B,4KiB,64KiB");
  if (!elements) return tl::make_unexpected(elements.error());
  std::vector<std::uint64_t> sizes;
  for (const std::string_view element : *elements) {
    const auto size = config::parse_size(element);
    if (!size) return tl::make_unexpected(config::explain_size(element));
    if (*size == 0) return tl::make_unexpected(quoted(element) + " is too small; at least 1B");
    sizes.push_back(*size);
  }
  return sizes;
}

tl::expected<std::vector<std::size_t>, std::string> parse_depth_list(std::string_view text) {
  const auto elements = elements_of(text, "32 or 1,8,32");
  if (!elements) return tl::make_unexpected(elements.error());
  std::vector<std::size_t> depths;
  for (const std::string_view element : *elements) {
    const auto depth = config::parse_number(element);
    if (!depth || *depth == 0 || *depth > kMaxQueueDepth)
      return tl::make_unexpected(quoted(element) + " is no depth; expected 1 to " +
                                 std::to_string(kMaxQueueDepth) + ", or a list as in 1,8,32");
    depths.push_back(*depth);
  }
  return depths;
}

}  // namespace remora::apps
