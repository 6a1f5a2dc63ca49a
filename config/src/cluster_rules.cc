#include "cluster_rules.h"

#include <string>
#include <string_view>

#include "text.h"

namespace remora::config {
namespace {

bool is_every_address(std::string_view address) { return address == "0.0.0.0" || address == "::"; }

void check_store(const Cluster& cluster, Report& report) {
  if (cluster.etcd.empty() == cluster.file.empty())
    report.fault("cluster", cluster.file.empty()
                                ? "names no store: give cluster.etcd, or cluster.file on one host"
                                : "names two stores: remove cluster.etcd or cluster.file");
  if (!cluster.etcd.empty() && cluster.name.empty())
    report.fault("cluster.name", "required with cluster.etcd, which may hold several clusters");
  if (!cluster.file.empty() && !cluster.name.empty())
    report.fault("cluster.name",
                 "has no use with cluster.file, which holds one cluster: remove it");
}

void check_credentials(const Cluster& cluster, Report& report) {
  if (cluster.tls_certificate_file.empty() != cluster.tls_key_file.empty())
    report.fault(
        cluster.tls_key_file.empty() ? "cluster.tls_key_file" : "cluster.tls_certificate_file",
        "a certificate and its key are given together");
  if (cluster.user.empty() != cluster.password_file.empty())
    report.fault(cluster.user.empty() ? "cluster.user" : "cluster.password_file",
                 "user and password_file are given together");
}

}  // namespace

void check_cluster(const ServerConfig& config, Report& report) {
  if (!report.good("cluster") || config.cluster == Cluster{}) return;
  const Cluster& cluster = config.cluster;
  if (report.good("cluster.server") && cluster.server.empty())
    report.fault("cluster.server", "required: the name of this server in its cluster");
  if (report.good("cluster.etcd") && report.good("cluster.file") && report.good("cluster.name"))
    check_store(cluster, report);
  check_credentials(cluster, report);
  if (report.good("cluster.advertise") && report.good("listen.address") &&
      cluster.advertise.empty() && is_every_address(config.listen.address))
    report.fault("cluster.advertise", "required, since listen.address " +
                                          in_quotes(config.listen.address) +
                                          " means every address: say to which one clients connect");
}

}  // namespace remora::config
