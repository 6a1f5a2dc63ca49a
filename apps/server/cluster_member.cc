#include "server/cluster_member.h"

#include <cerrno>
#include <charconv>
#include <nlohmann/json.hpp>

#include <remora/host_port.h>
#include <remora/start_thread.h>
#include <remora/system_file.h>
#include <remora/volume/open_store.h>
#include <remora/volume/remedy.h>
#include <remora/volume/uri.h>

#include "common/version.h"
#include "server/log.h"

namespace remora::apps {
namespace {

Result<volume::StoreOptions> options_of(const config::Cluster& cluster) {
  volume::StoreOptions options{.ca_file = cluster.tls_ca_file,
                               .certificate_file = cluster.tls_certificate_file,
                               .key_file = cluster.tls_key_file,
                               .user = cluster.user};
  if (cluster.password_file.empty()) return options;
  const auto text = detail::read_file(cluster.password_file.c_str());
  if (!text)
    return Error{errno == ENOENT ? Code::kNotFound : Code::kPermissionDenied,
                 "cluster.password_file"}
        .with_subject(cluster.password_file)
        .with_errno(errno);
  options.password = text->substr(0, text->find('\n'));
  if (options.password.ends_with('\r')) options.password.pop_back();
  return options;
}

/// A hexadecimal number in a text; 0: there is none.
std::uint64_t number_in(const nlohmann::json& json, const char* member) {
  const auto found = json.find(member);
  std::uint64_t number = 0;
  if (found == json.end() || !found->is_string()) return number;
  const auto& text = found->get_ref<const std::string&>();
  std::from_chars(text.data(), text.data() + text.size(), number, 16);
  return number;
}

volume::VolumeUri uri_of(const config::Cluster& cluster) {
  volume::VolumeUri uri;
  if (!cluster.file.empty()) {
    uri.store = volume::StoreKind::kFile;
    uri.path = cluster.file;
    uri.cluster = volume::kFileCluster;
  } else {
    uri.endpoints = cluster.etcd;
    uri.cluster = cluster.name;
  }
  return uri;
}

}  // namespace

Result<std::unique_ptr<ClusterMember>> ClusterMember::start(
    const config::ServerConfig& configuration, const Server& server) {
  const config::Cluster& settings = configuration.cluster;
  if (settings.server.empty()) return std::unique_ptr<ClusterMember>{};
  auto options = options_of(settings);
  if (!options) return options.error();
  options->registry = server.registry().shared_from_this();
  auto cluster = volume::Cluster::open(uri_of(settings), *options, kCall);
  if (!cluster) return cluster.error();
  volume::ServerRecord record;
  record.name = settings.server;
  record.addresses = settings.advertise;
  if (record.addresses.empty())
    record.addresses.push_back(detail::join_host_port(configuration.listen.address, server.port()));
  record.failure_domain = settings.failure_domain;
  record.software = kVersion;
  // docs/status.md: of this process, and of the contents of its memory.
  const auto ids = nlohmann::json::parse(server.status_json(), nullptr, false);
  record.boot_id = number_in(ids, "boot_id");
  record.memory_id = number_in(ids, "memory_id");
  auto metrics = ClusterMetrics::create(options->registry, kLease);
  if (!metrics) return metrics.error();
  std::unique_ptr<ClusterMember> member{new ClusterMember{std::move(*cluster), std::move(record),
                                                          [&server] { return server.status(); },
                                                          std::move(*metrics)}};
  auto thread = detail::start_thread("remora-cluster", [raw = member.get()] { raw->run(); });
  if (!thread) return thread.error();
  member->thread_ = std::move(*thread);
  return member;
}

ClusterMember::~ClusterMember() {
  {
    const detail::MutexLock lock{mutex_};
    stop_ = true;
  }
  stopped_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void ClusterMember::run() noexcept {
  detail::MutexLock lock{mutex_};
  while (!stop_) {
    lock.unlock();
    beat();
    lock.lock();
    stopped_.wait_for(lock, kBeat, [this] {
      mutex_.assert_held();
      return stop_;
    });
  }
  lock.unlock();
  // The record goes with its lease, also if this fails: a lease later.
  if (lease_ != volume::kNoLease) static_cast<void>(cluster_.store().revoke(lease_, kCall));
}

void ClusterMember::beat() {
  refresh_record();
  const Status kept = value_.empty() ? register_again() : renew();
  metrics_->set_registered(!value_.empty());
  if (kept) return;
  metrics_->failed(ClusterMetrics::Failure::kStore);
  tell_unreachable(kept.error());
}

void ClusterMember::refresh_record() {
  const ServerStatus now = status_();
  record_.pool_bytes = now.pool_bytes;
  const std::uint64_t used = now.pool_used_bytes + now.pool_freeing_bytes;
  record_.pool_free_bytes = used < now.pool_bytes ? now.pool_bytes - used : 0;
}

Status ClusterMember::renew() {
  if (const Status alive = cluster_.store().keep_alive(lease_, kCall); !alive) {
    // Only kNotFound says that the lease has ended; all else is tried again within it.
    if (alive.error().code() != Code::kNotFound) return alive;
    lease_ = volume::kNoLease;
    value_.clear();
    return register_again();
  }
  metrics_->lease_renewed();
  std::string value = to_json(record_);
  const std::string key = cluster_.keys().server(record_.name);
  if (value == value_) {
    const auto there = volume::get_one(cluster_.store(), key, kCall);
    if (!there) return there.error();
    if (*there && (*there)->value == value_) return tell_renewed();
    // Removed by hand, or by the restore of an older snapshot, while the lease lives on.
    value_.clear();
    return register_again();
  }
  const auto committed = cluster_.store().commit({{{key, value_}}, {{key, value, lease_}}}, kCall);
  if (!committed) return committed.error();
  if (committed->outcome == volume::Outcome::kApplied) {
    value_ = std::move(value);
    return tell_renewed();
  }
  // Applied or not, or another server's: registering finds out.
  value_.clear();
  return register_again();
}

Status ClusterMember::register_again() {
  const std::string key = cluster_.keys().server(record_.name);
  const auto there = volume::get_one(cluster_.store(), key, kCall);
  if (!there) return there.error();
  if (const auto generation = cluster_.generation(); !generation) return generation.error();
  volume::Compare before{key, std::nullopt};
  if (*there) {
    // A record of this process, from a transaction without an answer or before a lease that ended.
    const auto other = volume::parse_server(key, (*there)->value);
    if (!other || other->boot_id != record_.boot_id) {
      tell_name_taken((*there)->value);
      return ok_status();
    }
    before.value = (*there)->value;
  }
  if (lease_ == volume::kNoLease) {
    const auto lease = cluster_.store().grant_lease(kLease, kCall);
    if (!lease) return lease.error();
    lease_ = *lease;
    metrics_->lease_renewed();
  }
  std::string value = to_json(record_);
  const auto committed = cluster_.store().commit({{before}, {{key, value, lease_}}}, kCall);
  if (!committed) {
    if (committed.error().code() == Code::kNotFound) lease_ = volume::kNoLease;
    return committed.error();
  }
  if (committed->outcome != volume::Outcome::kApplied) return ok_status();  // the next beat looks
  value_ = std::move(value);
  told_ = Told::kRegistered;
  taken_since_.reset();
  log_info("cluster.registered",
           "registered as " + record_.name + " in the cluster " + cluster_.name() + " (" +
               cluster_.store().name() + "), at " + record_.addresses.front(),
           {{"server", record_.name}, {"cluster", cluster_.name()}});
  return ok_status();
}

/// Only when all calls of a beat have succeeded: a store that is full renews leases, and takes no
/// record.
Status ClusterMember::tell_renewed() {
  if (told_ != Told::kUnreachable) return ok_status();
  log_info("cluster.registered", "the store of the cluster answers again",
           {{"server", record_.name}, {"cluster", cluster_.name()}});
  told_ = Told::kRegistered;
  return ok_status();
}

void ClusterMember::tell_unreachable(const Error& error) {
  if (told_ == Told::kUnreachable) return;
  told_ = Told::kUnreachable;
  log_warn("cluster.unreachable",
           "the store of the cluster: " + error.message() + "; " +
               std::string{volume::remedy(error)} +
               "; the server serves, and registers itself when the store answers",
           {{"server", record_.name}, {"cluster", cluster_.name()}, {"reason", error.message()}});
}

void ClusterMember::tell_name_taken(const std::string& value) {
  // The record of a process that was killed goes with its lease.
  const auto now = std::chrono::steady_clock::now();
  if (!taken_since_) taken_since_ = now;
  if (now - *taken_since_ < kLease + kBeat) return;
  metrics_->failed(ClusterMetrics::Failure::kNameTaken);
  if (told_ == Told::kNameTaken) return;
  told_ = Told::kNameTaken;
  log_error("cluster.name_taken",
            "another server is registered as " + record_.name + " in the cluster " +
                cluster_.name() + ": " + value +
                "; give one of them another cluster.server; this one serves, but no volume is "
                "placed on it",
            {{"server", record_.name}, {"cluster", cluster_.name()}, {"record", value}});
}

}  // namespace remora::apps
