#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include <remora/metrics/http_endpoint.h>

#include "raw_client.h"

namespace remora::metrics {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kProtected[] = {"/metrics", "/status", "/history"};
// printf 'sre:pa:ss word' | base64
constexpr const char* kBasic = "Authorization: Basic c3JlOnBhOnNzIHdvcmQ=\r\n";

HttpEndpoint endpoint_with(HttpAccess access) {
  HttpOptions options;
  options.address = "127.0.0.1:0";
  options.access = std::move(access);
  return HttpEndpoint::start(Registry::create().value(), std::move(options)).value();
}

std::string ask(const HttpEndpoint& endpoint, const std::string& path, const std::string& header) {
  return get(endpoint.port(), path, "GET", header);
}

TEST(HttpAccess, NoneAreAskedForByDefault) {
  const HttpEndpoint endpoint = endpoint_with({});
  for (const char* const path : kProtected)
    EXPECT_THAT(ask(endpoint, path, ""), StartsWith("HTTP/1.1 200 ")) << path;
}

TEST(HttpAccess, TokenLetsIn) {
  const HttpEndpoint endpoint = endpoint_with({.token = "s3cret~+/="});
  for (const char* const path : kProtected) {
    EXPECT_THAT(ask(endpoint, path, "Authorization: Bearer s3cret~+/=\r\n"),
                StartsWith("HTTP/1.1 200 "));
    EXPECT_THAT(ask(endpoint, path, "authorization: bearer s3cret~+/=\r\n"),
                StartsWith("HTTP/1.1 200 "));
    for (const char* const wrong :
         {"", "Authorization: Bearer s3cret~+/\r\n", "Authorization: Bearer s3cret~+/==\r\n",
          "Authorization: Bearer S3CRET~+/=\r\n", "Authorization: Bearer \r\n",
          "Authorization: s3cret~+/=\r\n", "Authorization: Basic s3cret~+/=\r\n",
          "X-Token: s3cret~+/=\r\n"}) {
      const std::string response = ask(endpoint, path, wrong);
      EXPECT_THAT(response, StartsWith("HTTP/1.1 401 ")) << wrong;
      EXPECT_THAT(response, HasSubstr("WWW-Authenticate: Bearer realm=\"remora\"\r\n"));
      EXPECT_THAT(response, Not(HasSubstr("Basic")));
      EXPECT_THAT(body_of(response), HasSubstr("metrics.token"));
    }
  }
}

TEST(HttpAccess, UserAndPasswordLetIn) {
  const HttpEndpoint endpoint = endpoint_with({.user = "sre", .password = "pa:ss word"});
  EXPECT_THAT(ask(endpoint, "/metrics", kBasic), StartsWith("HTTP/1.1 200 "));
  const std::string response = ask(endpoint, "/metrics", "Authorization: Basic c3JlOg==\r\n");
  EXPECT_THAT(response, StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(response, HasSubstr("WWW-Authenticate: Basic realm=\"remora\""));
}

TEST(HttpAccess, EitherWillDoWhereBothAreGiven) {
  const HttpEndpoint endpoint =
      endpoint_with({.token = "abc", .user = "sre", .password = "pa:ss word"});
  EXPECT_THAT(ask(endpoint, "/status", kBasic), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(ask(endpoint, "/status", "Authorization: Bearer abc\r\n"),
              StartsWith("HTTP/1.1 200 "));
  const std::string response = ask(endpoint, "/status", "");
  EXPECT_THAT(response, HasSubstr("WWW-Authenticate: Bearer"));
  EXPECT_THAT(response, HasSubstr("WWW-Authenticate: Basic"));
}

// An orchestrator's probe has no credentials, and they tell nothing else.
TEST(HttpAccess, ProbesAndPathsThatAreNotThereNeedNone) {
  const HttpEndpoint endpoint = endpoint_with({.token = "abc"});
  EXPECT_THAT(ask(endpoint, "/healthz", ""), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(ask(endpoint, "/readyz", ""), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(ask(endpoint, "/nothing", ""), StartsWith("HTTP/1.1 404 "));
}

// Spellings of a protected path that a router might take for it.
TEST(HttpAccess, OtherSpellingsOfAPathAreNoWayRound) {
  const HttpEndpoint endpoint = endpoint_with({.token = "abc"});
  for (const char* const path : {"/metrics/", "//metrics", "/./metrics", "/%6Detrics", "/metrics?x",
                                 "/metrics#x", "/METRICS", "/x/../metrics", "/metrics%00"})
    EXPECT_THAT(ask(endpoint, path, ""), Not(StartsWith("HTTP/1.1 200 "))) << path;
  const std::string head = get(endpoint.port(), "/metrics", "HEAD");
  EXPECT_THAT(head, StartsWith("HTTP/1.1 401 "));
}

TEST(HttpAccess, BadCredentialsAreRefusedAtTheStart) {
  const auto code = [](HttpAccess access) {
    HttpOptions options;
    options.address = "127.0.0.1:0";
    options.access = std::move(access);
    const auto endpoint = HttpEndpoint::start(Registry::create().value(), std::move(options));
    return endpoint ? Code::kInternal : endpoint.error().code();
  };
  EXPECT_EQ(code({.token = "two words"}), Code::kInvalidArgument);
  EXPECT_EQ(code({.token = "line\nbreak"}), Code::kInvalidArgument);
  EXPECT_EQ(code({.token = std::string(1'025, 'x')}), Code::kInvalidArgument);
  EXPECT_EQ(code({.user = "sre"}), Code::kInvalidArgument);
  EXPECT_EQ(code({.password = "x"}), Code::kInvalidArgument);
  EXPECT_EQ(code({.user = "a:b", .password = "x"}), Code::kInvalidArgument);
  EXPECT_EQ(code({.user = "a", .password = "x\r\nSet-Cookie: y"}), Code::kInvalidArgument);
}

}  // namespace
}  // namespace remora::metrics
