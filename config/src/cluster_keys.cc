// Keys by which a server registers itself in a cluster.

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "key_builders.h"
#include "key_checks.h"
#include "key_tables.h"

namespace remora::config {
namespace {

using namespace key_builders;  // NOLINT(google-build-using-namespace): the words of the table

constexpr std::uint64_t kClusterNamesMax = 16;

/// Not set if the list is empty.
template <typename Field>
constexpr Access optional_names(Field /*field*/) {
  return {[](ServerConfig& c, At at, const Value& v) {
            Field{}(c, at) = std::get<std::vector<std::string>>(v);
          },
          [](const ServerConfig& c, At at) -> std::optional<Value> {
            if (Field{}(c, at).empty()) return std::nullopt;
            return holding<std::vector<std::string>>(Field{}(c, at));
          }};
}

constexpr auto kClusterName =
    optional_text([](auto& c, std::size_t) -> auto& { return c.cluster.name; });
constexpr auto kClusterServer =
    optional_text([](auto& c, std::size_t) -> auto& { return c.cluster.server; });
constexpr auto kClusterEtcd =
    optional_names([](auto& c, std::size_t) -> auto& { return c.cluster.etcd; });
constexpr auto kClusterFile =
    optional_text([](auto& c, std::size_t) -> auto& { return c.cluster.file; });
constexpr auto kClusterFailureDomain =
    optional_text([](auto& c, std::size_t) -> auto& { return c.cluster.failure_domain; });
constexpr auto kClusterAdvertise =
    optional_names([](auto& c, std::size_t) -> auto& { return c.cluster.advertise; });
constexpr auto kClusterCaFile =
    optional_text([](auto& c, std::size_t) -> auto& { return c.cluster.tls_ca_file; });
constexpr auto kClusterCertificateFile =
    optional_text([](auto& c, std::size_t) -> auto& { return c.cluster.tls_certificate_file; });
constexpr auto kClusterKeyFile =
    optional_text([](auto& c, std::size_t) -> auto& { return c.cluster.tls_key_file; });
constexpr auto kClusterUser =
    optional_text([](auto& c, std::size_t) -> auto& { return c.cluster.user; });
constexpr auto kClusterPasswordFile =
    optional_text([](auto& c, std::size_t) -> auto& { return c.cluster.password_file; });

constexpr std::string_view kClusterNameText = "1 to 64 of `A-Z a-z 0-9 . _ -`";
constexpr std::string_view kClusterPathText = "an absolute path";

constexpr std::array kClusterKeys{
    group("cluster", KeyType::kMap,
          "The cluster in which this server registers itself, for volumes over several servers. "
          "Without it the server is in no cluster."),
    free_text("cluster.server", kClusterNameText, is_region_name, kClusterServer,
              "The name of this server; no other server of the cluster has it."),
    free_text("cluster.name", kClusterNameText, is_region_name, kClusterName,
              "The name of the cluster, with `etcd`."),
    names("cluster.etcd", "`http://HOST:PORT`, `https://HOST:PORT`, or a list of them",
          is_etcd_endpoint, {}, kClusterNamesMax, kClusterEtcd,
          "The endpoints of etcd. The server asks the next one when one does not answer."),
    free_text("cluster.file", "an absolute path that ends in `.json`", is_cluster_file,
              kClusterFile, "A file of this host, in place of etcd, for servers of one host only."),
    free_text("cluster.failure_domain", kClusterNameText, is_region_name, kClusterFailureDomain,
              "What fails at once: servers of one rack have one name here. Not set: the server "
              "alone."),
    names("cluster.advertise", "`HOST:PORT`, `[IPv6]:PORT`, or a list of them",
          is_advertised_address, {}, kClusterNamesMax, kClusterAdvertise,
          "Where clients connect, in their order of preference. Not set: `listen.address` and its "
          "port."),
    free_text("cluster.tls_ca_file", kClusterPathText, is_absolute_path, kClusterCaFile,
              "PEM: the certificates of those that may sign etcd's certificate. Not set: the "
              "system's."),
    free_text("cluster.tls_certificate_file", kClusterPathText, is_absolute_path,
              kClusterCertificateFile, "PEM: the certificate that this server shows to etcd."),
    free_text("cluster.tls_key_file", kClusterPathText, is_absolute_path, kClusterKeyFile,
              "PEM: the key of that certificate."),
    discreet(free_text("cluster.user", "text without colons and line breaks, at most 1024 bytes",
                       is_user, kClusterUser, "The user of etcd, with `password_file`.")),
    free_text("cluster.password_file", kClusterPathText, is_absolute_path, kClusterPasswordFile,
              "A file whose first line is the password of `user`."),
};

}  // namespace

std::span<const Key> cluster_keys() { return kClusterKeys; }

}  // namespace remora::config
