#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include <remora/system_file.h>
#include <remora/volume/open_store.h>

#include "etcd_store.h"
#include "file_store.h"
#include "measured_store.h"

namespace remora::volume {
namespace {

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string{} : std::string{value};
}

Error unreadable(const std::string& path, int number) {
  const Code code = number == ENOENT   ? Code::kNotFound
                    : number == EACCES ? Code::kPermissionDenied
                                       : Code::kSystem;
  return Error{code, "file for etcd"}.with_subject(path).with_errno(number);
}

/// `store`, or one that counts its calls, too.
Result<std::shared_ptr<MetadataStore>> measured(std::shared_ptr<MetadataStore> store,
                                                StoreKind kind, const StoreOptions& options) {
  if (options.registry == nullptr) return store;
  auto metrics = StoreMetrics::create(options.registry, kind);
  if (!metrics) return metrics.error();
  return std::shared_ptr<MetadataStore>{
      std::make_shared<MeasuredStore>(std::move(store), std::move(*metrics))};
}

/// Requests are JSON, whose texts are UTF-8.
Status check_utf8(const std::string& text, Operation what) {
  try {
    static_cast<void>(nlohmann::json(text).dump());
    return ok_status();
  } catch (const nlohmann::json::type_error&) {
    return Error{Code::kInvalidArgument, what}.with_subject("it is not UTF-8");
  }
}

Status check_readable(const std::string& path) {
  if (path.empty() || remora::detail::read_file(path.c_str())) return ok_status();
  return unreadable(path, errno);
}

}  // namespace

Result<StoreOptions> store_options_of_environment() {
  StoreOptions options;
  options.ca_file = environment("REMORA_ETCD_CA_FILE");
  options.certificate_file = environment("REMORA_ETCD_CERTIFICATE_FILE");
  options.key_file = environment("REMORA_ETCD_KEY_FILE");
  options.user = environment("REMORA_ETCD_USER");
  const std::string path = environment("REMORA_ETCD_PASSWORD_FILE");
  if (path.empty()) return options;
  auto text = remora::detail::read_file(path.c_str());
  if (!text) return unreadable(path, errno);
  options.password = text->substr(0, text->find('\n'));
  if (options.password.ends_with('\r')) options.password.pop_back();
  return options;
}

Result<std::shared_ptr<MetadataStore>> open_store(const VolumeUri& uri,
                                                  const StoreOptions& options) {
  if (uri.store == StoreKind::kFile)
    return measured(std::make_shared<FileStore>(uri.path), uri.store, options);
  if (uri.endpoints.empty()) return Error{Code::kInvalidArgument, "cluster URI endpoint"};
  for (const std::string* path : {&options.ca_file, &options.certificate_file, &options.key_file})
    if (const Status readable = check_readable(*path); !readable) return readable.error();
  if (const Status user = check_utf8(options.user, "user of etcd"); !user) return user.error();
  if (const Status password = check_utf8(options.password, "password of etcd"); !password)
    return password.error();
  return measured(std::make_shared<EtcdStore>(uri.endpoints, options), uri.store, options);
}

}  // namespace remora::volume
