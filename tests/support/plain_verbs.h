#pragma once

/// A protection domain without a device, whose registrations cost next to nothing: what is measured
/// over it is our own.

#include <cstdint>
#include <infiniband/verbs.h>

#include <remora/verbs/verbs.h>

namespace remora::test {

inline verbs::ProtectionDomain plain_domain() {
  static ibv_device device{};
  static verbs::Provider table = [] {
    verbs::Provider plain = verbs::Provider::system();
    plain.get_device_list = [](int* count) {
      *count = 1;
      return new ibv_device* [2] { &device, nullptr };
    };
    plain.free_device_list = [](ibv_device** list) { delete[] list; };
    plain.is_software_device = [](const ibv_device*) { return true; };
    plain.open_device = [](ibv_device* opened) {
      auto* const context = new ibv_context{};
      context->device = opened;
      return context;
    };
    plain.close_device = [](ibv_context* context) { return delete context, 0; };
    plain.query_device = [](ibv_context*, ibv_device_attr* attributes) {
      *attributes = {};
      attributes->max_mr_size = UINT64_MAX;
      return 0;
    };
    plain.alloc_pd = [](ibv_context* context) { return new ibv_pd{context, 0}; };
    plain.dealloc_pd = [](ibv_pd* domain) { return delete domain, 0; };
    plain.reg_mr = [](ibv_pd* domain, void* address, std::size_t length, unsigned) {
      auto* const region = new ibv_mr{};
      region->pd = domain;
      region->addr = address;
      region->length = length;
      return region;
    };
    plain.dereg_mr = [](ibv_mr* region) { return delete region, 0; };
    return plain;
  }();
  return verbs::devices(table).value()[0].open().value().allocate_domain().value();
}

}  // namespace remora::test
