// The embedded server, and views of its regions.

#include <string>

#include <remora/config/load.h>
#include <remora/metrics/registry.h>

#include "call.h"
#include "handles.h"
#include "libraries.h"

namespace remora::c {
namespace {

using Loaded = tl::expected<config::ServerConfig, config::Diagnostics>;

/// Starts a server. `load` reads the configuration.
template <typename Load>
int start_server(Call& call, remora_server** server, char** diagnostics, remora_error* error,
                 const Load& load) noexcept {
  call.into(server, "server");
  if (diagnostics != nullptr) call.into(diagnostics, "diagnostics");
  // Also where another argument is wrong: the caller frees it in any case.
  if (diagnostics != nullptr && is_aligned(diagnostics)) *diagnostics = nullptr;
  std::string faults;
  const int code = call.run([&]() -> Status {
    const Loaded config = load();
    if (!config) {
      faults = config.error().empty() ? "" : config.error()[0].to_string();
      if (diagnostics != nullptr)
        (void)hand_over_text(config.error().to_string(), diagnostics, nullptr, call.operation());
      return Error{Code::kInvalidArgument, call.operation()}.with_subject(faults);
    }
    if (const Status checked = check_libraries(call.operation()); !checked) return checked.error();
    return make_handle(Server::start(*config), server);
  });
  if (!faults.empty()) replace_message(faults, error);
  return code;
}

std::string lines_of(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text.append(line).append("\n");
  return text;
}

}  // namespace
}  // namespace remora::c

using remora::ByteOffset;
using remora::Status;
using remora::c::Call;
using remora::c::give_text;
using remora::c::is_live;

int remora_server_start_file(const char* path, remora_server** server, char** diagnostics,
                             remora_error* error) noexcept {
  Call call{"remora_server_start_file", error};
  call.text(path, "path");
  return remora::c::start_server(call, server, diagnostics, error,
                                 [path] { return remora::config::load_server(path); });
}

int remora_server_start_text(const char* text, const char* name, remora_server** server,
                             char** diagnostics, remora_error* error) noexcept {
  Call call{"remora_server_start_text", error};
  call.text(text, "text");
  return remora::c::start_server(call, server, diagnostics, error, [text, name] {
    return remora::config::parse_server(text, name == nullptr ? "" : name);
  });
}

int remora_server_stop(remora_server* server, remora_error* error) noexcept {
  return Call{"remora_server_stop", error}.on(server).run([&]() -> Status {
    server->object.stop();
    return {};
  });
}

int remora_server_expedite_stop(remora_server* server) noexcept {
  return Call{"remora_server_expedite_stop", nullptr}.on(server).run([&]() -> Status {
    server->object.expedite_stop();
    return {};
  });
}

void remora_server_free(remora_server* server) noexcept { remora::c::free_handle(server); }

uint16_t remora_server_port(const remora_server* server) noexcept {
  return is_live(server) ? server->object.port() : 0;
}

int remora_server_metrics_address(const remora_server* server, char** text,
                                  remora_error* error) noexcept {
  return give_text({"remora_server_metrics_address", error}, server, text, nullptr,
                   [&] { return server->object.metrics_address(); });
}

int remora_server_listening(const remora_server* server, char** text,
                            remora_error* error) noexcept {
  return give_text({"remora_server_listening", error}, server, text, nullptr,
                   [&] { return remora::c::lines_of(server->object.listening()); });
}

int remora_server_status_json(const remora_server* server, char** text, size_t* length,
                              remora_error* error) noexcept {
  return give_text({"remora_server_status_json", error}, server, text, length,
                   [&] { return server->object.status_json(); });
}

int remora_server_metrics(const remora_server* server, char** text, size_t* length,
                          remora_error* error) noexcept {
  return give_text({"remora_server_metrics", error}, server, text, length,
                   [&] { return server->object.registry().text(); });
}

int remora_server_status(const remora_server* server, remora_server_counts* counts,
                         remora_error* error) noexcept {
  return Call{"remora_server_status", error}
      .on(server)
      .fills(counts, "counts")
      .run([&]() -> Status {
        const remora::ServerStatus told = server->object.status();
        remora::c::fill(counts,
                        remora_server_counts{.size = 0,
                                             .sessions = told.sessions,
                                             .regions = told.regions,
                                             .grants = told.grants,
                                             .pool_bytes = told.pool_bytes,
                                             .pool_used_bytes = told.pool_used_bytes,
                                             .pool_freeing_bytes = told.pool_freeing_bytes});
        return {};
      });
}

int remora_server_create_region(const remora_server* server, const remora_region_spec* spec,
                                remora_region_info* info, remora_error* error) noexcept {
  Call call{"remora_server_create_region", error};
  remora_region_spec given{};
  call.on(server).copies(spec, given, "spec: its size").fills_any(info, "info");
  return call.run([&]() -> Status {
    const auto made = remora::c::to_spec(given, call.operation());
    if (!made) return made.error();
    return remora::c::give_info(server->object.create_region(*made), info);
  });
}

int remora_server_remove_region(const remora_server* server, const char* name, int removal,
                                remora_error* error) noexcept {
  Call call{"remora_server_remove_region", error};
  return call.on(server).text(name, "name").run([&]() -> Status {
    const auto how = remora::c::to_removal(removal, call.operation());
    if (!how) return how.error();
    return server->object.remove_region(name, *how);
  });
}

int remora_server_resize_region(const remora_server* server, const char* name, uint64_t size_bytes,
                                remora_region_info* info, remora_error* error) noexcept {
  return Call{"remora_server_resize_region", error}
      .on(server)
      .text(name, "name")
      .fills_any(info, "info")
      .run([&] {
        return remora::c::give_info(server->object.resize_region(name, size_bytes), info);
      });
}

int remora_server_regions(const remora_server* server, remora_region_list** list,
                          remora_error* error) noexcept {
  return Call{"remora_server_regions", error}.on(server).into(list, "list").run([&] {
    return remora::c::make_handle(
        remora::Result<std::vector<remora::RegionInfo>>{server->object.regions()}, list);
  });
}

int remora_server_on_notice(const remora_server* server, const char* region,
                            remora_notice_handler handler, void* context,
                            remora_error* error) noexcept {
  Call call{"remora_server_on_notice", error};
  return call.on(server).text(region, "region").run([&] {
    if (handler == nullptr) return server->object.on_notify(region, {});
    return server->object.on_notify(region, [handler, context](const remora::Notification& told) {
      const remora_notice notice{.size = sizeof(remora_notice),
                                 .region = told.region.c_str(),
                                 .offset = told.offset.bytes,
                                 .length = told.length_bytes,
                                 .notice = told.tag,
                                 .reserved = 0};
      handler(context, &notice);
    });
  });
}

int remora_server_view(const remora_server* server, const char* region, remora_view** view,
                       remora_error* error) noexcept {
  Call call{"remora_server_view", error};
  return call.on(server).text(region, "region").into(view, "view").run([&] {
    return remora::c::make_handle(server->object.view(region), view);
  });
}
void remora_view_free(remora_view* view) noexcept { remora::c::free_handle(view); }

uint64_t remora_view_size_bytes(const remora_view* view) noexcept {
  return is_live(view) ? view->object.size_bytes() : 0;
}

int remora_view_read(const remora_view* view, uint64_t offset, void* into, size_t length,
                     remora_error* error) noexcept {
  auto* const bytes = static_cast<std::byte*>(into);
  return Call{"remora_view_read", error}.on(view).into(bytes, "into").run([&] {
    return view->object.read(ByteOffset{offset}, {bytes, length});
  });
}

int remora_view_write(const remora_view* view, uint64_t offset, const void* from, size_t length,
                      remora_error* error) noexcept {
  const auto* const bytes = static_cast<const std::byte*>(from);
  return Call{"remora_view_write", error}.on(view).into(bytes, "from").run([&] {
    return view->object.write(ByteOffset{offset}, {bytes, length});
  });
}

int remora_view_extents(const remora_view* view, remora_extent* extents, size_t capacity,
                        size_t* count, remora_error* error) noexcept {
  Call call{"remora_view_extents", error};
  call.on(view).into(count, "count");
  if (capacity != 0) call.into(extents, "extents");
  return call.run([&]() -> Status {
    const auto found = view->object.extents();
    *count = found.size();
    for (std::size_t i = 0; i < std::min(capacity, found.size()); ++i)
      extents[i] = {.data = found[i].data(), .length = found[i].size()};
    return {};
  });
}
