#include "doctor/address_mask.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cstddef>
#include <netinet/in.h>
#include <utility>

namespace remora::apps::doctor {
namespace {

/// Shorter host names occur as words of other texts.
constexpr std::size_t kMinHostBytes = 3;
/// Replaces each host name.
constexpr std::string_view kMasked = "host";

bool is_hexadecimal(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}
bool is_address_character(char c) { return is_hexadecimal(c) || c == ':' || c == '.'; }
bool is_name_character(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         c == '-' || c == '.';
}

/// Groups of hexadecimal digits of one length between colons: a MAC address has six of two, a GUID
/// four of four.
bool has_groups(std::string_view word, std::size_t groups, std::size_t digits) {
  if (word.size() != groups * (digits + 1) - 1) return false;
  for (std::size_t i = 0; i < word.size(); ++i)
    if ((i % (digits + 1) == digits) != (word[i] == ':')) return false;
  return word.find('.') == std::string_view::npos;
}

bool is_ipv4(std::string_view word) {
  in_addr parsed{};
  return ::inet_pton(AF_INET, std::string{word}.c_str(), &parsed) == 1;
}

bool is_ipv6(std::string_view word) {
  in6_addr parsed{};
  return ::inet_pton(AF_INET6, std::string{word}.c_str(), &parsed) == 1;
}

bool is_common(std::string_view word) {
  return word.starts_with("127.") || word == "0.0.0.0" || word == "::" || word == "::1" ||
         word == "fe80::";
}

}  // namespace

AddressMask::AddressMask(std::vector<std::string> hosts) : hosts_{std::move(hosts)} {
  std::erase_if(hosts_, [](const std::string& host) {
    return host.size() < kMinHostBytes || host == "localhost" || is_ipv4(host) || is_ipv6(host);
  });
  // "storage7.example" before "storage7".
  std::sort(hosts_.begin(), hosts_.end(),
            [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
}

std::string AddressMask::name_for(std::string_view kind, std::string_view value) {
  if (const auto found = names_.find(value); found != names_.end()) return found->second;
  std::string name = std::string{kind} + "-" + std::to_string(names_.size() + 1);
  names_.emplace(std::string{value}, name);
  return name;
}

std::string AddressMask::mask_word(std::string_view word) {
  if (is_common(word)) return std::string{word};
  if (has_groups(word, 6, 2)) return name_for("mac", word);
  if (has_groups(word, 4, 4)) return name_for("guid", word);
  if (is_ipv4(word) || is_ipv6(word)) return name_for("address", word);
  // "192.0.2.1:7471", "192.0.2.1." and "fe80::1:": the text after the address stays.
  const std::size_t colon = word.rfind(':');
  if (colon != std::string_view::npos && is_ipv4(word.substr(0, colon)) &&
      !is_common(word.substr(0, colon)))
    return name_for("address", word.substr(0, colon)) + std::string{word.substr(colon)};
  if (!word.empty() && (word.back() == '.' || word.back() == ':'))
    return mask_word(word.substr(0, word.size() - 1)) + word.back();
  return std::string{word};
}

std::string AddressMask::mask_hosts(std::string text) const {
  for (const std::string& host : hosts_) {
    for (std::size_t at = text.find(host); at != std::string::npos; at = text.find(host, at)) {
      const std::size_t end = at + host.size();
      const bool begins = at == 0 || !is_name_character(text[at - 1]);
      const bool ends = end == text.size() || !is_name_character(text[end]) || text[end] == '.';
      if (begins && ends) {
        text.replace(at, host.size(), kMasked);
        at += kMasked.size();
      } else {
        ++at;
      }
    }
  }
  return text;
}

std::string AddressMask::apply(std::string_view text) {
  std::string masked;
  char before = ' ';
  while (!text.empty()) {
    std::size_t length = 0;
    // Not the end of a longer word, such as the version in a library's name.
    if (!is_name_character(before))
      while (length < text.size() && is_address_character(text[length])) ++length;
    const bool whole = length == text.size() || !is_name_character(text[length]);
    if (length != 0 && whole) {
      masked += mask_word(text.substr(0, length));
      before = text[length - 1];
      text.remove_prefix(length);
      continue;
    }
    before = text.front();
    masked.push_back(before);
    text.remove_prefix(1);
  }
  return mask_hosts(std::move(masked));
}

}  // namespace remora::apps::doctor
