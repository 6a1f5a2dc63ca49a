#include <remora/volume/keys.h>

namespace remora::volume {

Keys::Keys(std::string_view cluster) { root_.append("/remora/").append(cluster).append("/"); }

std::string Keys::server(std::string_view name) const { return servers().append(name); }

std::string Keys::draining(std::string_view server) const { return draining().append(server); }

// A volume's own key is not a prefix of another volume's: names hold no slash.
std::string Keys::volume(std::string_view name) const { return volumes().append(name); }

std::string Keys::groups(std::string_view volume) const {
  return this->volume(volume).append("/groups/");
}

std::string Keys::group(std::string_view volume, std::uint64_t index) const {
  // Of one length, so that their order is that of the groups.
  const std::string number = std::to_string(index);
  constexpr std::size_t kIndexDigits = 5;
  return groups(volume)
      .append(number.size() < kIndexDigits ? kIndexDigits - number.size() : 0, '0')
      .append(number);
}

std::string Keys::writer(std::string_view volume) const {
  return this->volume(volume).append("/writer");
}

}  // namespace remora::volume
