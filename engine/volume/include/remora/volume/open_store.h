#pragma once

/// Opens the store of a cluster.

#include <memory>
#include <string>

#include <remora/metrics/registry.h>
#include <remora/result.h>
#include <remora/volume/metadata_store.h>
#include <remora/volume/uri.h>

namespace remora::volume {

/// How a client proves itself to etcd, and etcd to the client, and where calls are counted. Each
/// may be empty.
struct StoreOptions {
  std::string ca_file{};           ///< PEM: the signers of etcd's certificate; empty: the system's
  std::string certificate_file{};  ///< PEM: the client's certificate
  std::string key_file{};          ///< PEM: its key
  std::string user{};
  std::string password{};
  /// Shows the latency and the errors of the store's calls: the sum over all stores of one kind
  /// (metrics/docs/catalogue.md). Empty: no series. Engine::registry().shared_from_this() shows
  /// them with those of the engine.
  std::shared_ptr<metrics::Registry> registry{};
};

/// Reads the options of a program: REMORA_ETCD_CA_FILE, REMORA_ETCD_CERTIFICATE_FILE,
/// REMORA_ETCD_KEY_FILE, REMORA_ETCD_USER and REMORA_ETCD_PASSWORD_FILE, whose first line is the
/// password. Errors: those of reading that file.
Result<StoreOptions> store_options_of_environment();

/// Connects to nothing yet: the first call does. A file is made by the first commit().
/// Errors: kInvalidArgument (an endpoint; user or password that is not UTF-8); kNotFound,
/// kPermissionDenied (a file of `options`).
Result<std::shared_ptr<MetadataStore>> open_store(const VolumeUri& uri,
                                                  const StoreOptions& options = {});

}  // namespace remora::volume
