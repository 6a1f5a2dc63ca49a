#pragma once

/// URIs of clusters and volumes.
///
///   remora+etcd://HOST:2379[,HOST2:2379...]/CLUSTER[/VOLUME][?tls=on]
///   remora+file:///PATH/NAME.json[/VOLUME]
///
/// A port that is missing is 2379. The file of a cluster ends in `.json`; it holds one cluster,
/// whose name is kFileCluster. Names of clusters and volumes are as names of regions.
///
/// Thread safety: values.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <remora/result.h>

namespace remora::volume {

/// The name of the cluster in a file.
inline constexpr std::string_view kFileCluster = "local";
inline constexpr std::uint16_t kEtcdPort = 2379;
inline constexpr std::size_t kEndpointsMax = 16;

/// Where a cluster keeps its records.
enum class StoreKind : std::uint8_t { kEtcd, kFile };

/// The parts of a URI.
struct VolumeUri {
  StoreKind store = StoreKind::kEtcd;
  std::vector<std::string> endpoints{};  ///< etcd: "http://HOST:PORT" or "https://HOST:PORT"
  std::string path{};                    ///< file: absolute
  std::string cluster{};
  std::string volume{};  ///< empty: the URI names the cluster

  /// The URI again, in full.
  [[nodiscard]] std::string text() const;
  friend bool operator==(const VolumeUri&, const VolumeUri&) = default;
};

/// Whether `text` begins as such a URI does: "remora+etcd://" or "remora+file://".
[[nodiscard]] bool is_volume_uri(std::string_view text) noexcept;

/// Errors: kInvalidArgument; the operation is the part that is wrong, the subject its text.
Result<VolumeUri> parse_uri(std::string_view text);

/// The same, and the URI must name a volume.
Result<VolumeUri> parse_volume_uri(std::string_view text);

}  // namespace remora::volume
