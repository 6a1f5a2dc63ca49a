#pragma once

/// Starts HTTP endpoints with a registry of the test.

#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <utility>

#include <remora/metrics/http_endpoint.h>
#include <remora/metrics/registry.h>

namespace remora::metrics {

class HttpEndpointTest : public ::testing::Test {
 protected:
  HttpEndpoint start(HttpOptions options = {}) {
    if (options.address == HttpOptions{}.address) options.address = "127.0.0.1:0";
    auto endpoint = HttpEndpoint::start(registry_, std::move(options));
    EXPECT_TRUE(endpoint) << endpoint.error();
    return *std::move(endpoint);
  }
  Code start_error(const std::string& address) {
    const auto endpoint = HttpEndpoint::start(registry_, {.address = address});
    return endpoint ? Code::kInternal : endpoint.error().code();
  }
  std::shared_ptr<Registry> registry_ = Registry::create().value();
};

}  // namespace remora::metrics
