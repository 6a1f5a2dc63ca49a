#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>

#include <remora/config/rdma_settings.h>

namespace remora::config {
namespace {

/// One setting, as a number of the widest type.
struct Setting {
  std::string_view name;
  std::uint16_t min;
  std::uint16_t max;
  std::optional<std::uint16_t> (*read)(const RdmaSettings&);
  void (*write)(RdmaSettings&, std::uint16_t);
};

template <auto Member>
constexpr Setting setting(std::string_view name, std::uint16_t min, std::uint16_t max) {
  return {
      name, min, max,
      [](const RdmaSettings& settings) -> std::optional<std::uint16_t> { return settings.*Member; },
      [](RdmaSettings& settings, std::uint16_t value) {
        using Field = typename std::remove_reference_t<decltype(settings.*Member)>::value_type;
        settings.*Member = static_cast<Field>(value);
      }};
}

constexpr std::string_view kPkeyName = "pkey";
constexpr std::string_view kMtuName = "mtu";
constexpr std::array kSettings{
    setting<&RdmaSettings::traffic_class>("traffic_class", 0, 255),
    setting<&RdmaSettings::service_level>("service_level", 0, 15),
    setting<&RdmaSettings::pkey>(kPkeyName, 1, 0xffff),
    setting<&RdmaSettings::gid_index>("gid_index", 0, 255),
    setting<&RdmaSettings::mtu>(kMtuName, 256, 4096),
    setting<&RdmaSettings::timeout>("timeout", 1, 31),
    setting<&RdmaSettings::retry_count>("retry_count", 0, 7),
    setting<&RdmaSettings::rnr_retry>("rnr_retry", 0, 7),
};

const Setting* find(std::string_view name) noexcept {
  const auto* const found = std::find_if(kSettings.begin(), kSettings.end(),
                                         [&](const Setting& each) { return each.name == name; });
  return found == kSettings.end() ? nullptr : &*found;
}

bool is_in_range(const Setting& setting, std::uint16_t value) noexcept {
  if (value < setting.min || value > setting.max) return false;
  return setting.name != kMtuName || (value & (value - 1U)) == 0;
}

std::string text_of(const Setting& setting, std::uint16_t value) {
  if (setting.name != kPkeyName) return std::to_string(value);
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text = "0x";
  for (const unsigned shift : {12U, 8U, 4U, 0U}) text += kDigits[(unsigned{value} >> shift) & 15U];
  return text;
}

}  // namespace

RdmaSettings with_defaults(RdmaSettings settings, const RdmaSettings& base) noexcept {
  for (const Setting& each : kSettings)
    if (const auto value = each.read(base); value && !each.read(settings))
      each.write(settings, *value);
  return settings;
}

bool is_rdma_setting(std::string_view name) noexcept { return find(name) != nullptr; }

Status set_rdma_setting(RdmaSettings& settings, std::string_view name, std::string_view value) {
  const Setting* const setting = find(name);
  if (setting == nullptr) return Error{Code::kNotFound, "rdma setting"}.with_subject(name);
  const bool hexadecimal = name == kPkeyName && value.starts_with("0x");
  const std::string_view digits = hexadecimal ? value.substr(2) : value;
  std::uint16_t number = 0;
  const char* const digits_end = digits.data() + digits.size();
  const auto [end, failure] =
      std::from_chars(digits.data(), digits_end, number, hexadecimal ? 16 : 10);
  if (failure != std::errc{} || end != digits_end || !is_in_range(*setting, number))
    return Error{Code::kInvalidArgument, "rdma setting"}.with_subject(
        std::string{name}.append("=").append(value));
  setting->write(settings, number);
  return {};
}

Status check(const RdmaSettings& settings) {
  for (const Setting& each : kSettings) {
    const auto value = each.read(settings);
    if (value && !is_in_range(each, *value))
      return Error{Code::kInvalidArgument, "rdma setting"}.with_subject(
          std::string{each.name}.append("=").append(text_of(each, *value)));
  }
  return {};
}

std::string to_string(const RdmaSettings& settings, std::string_view between) {
  std::string text;
  for (const Setting& each : kSettings)
    if (const auto value = each.read(settings))
      text.append(text.empty() ? "" : between)
          .append(each.name)
          .append("=")
          .append(text_of(each, *value));
  return text;
}

}  // namespace remora::config
