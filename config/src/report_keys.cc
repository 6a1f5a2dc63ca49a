// Keys for the reports of the server: its log and its metrics.

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "hosts.h"
#include "key_builders.h"
#include "key_checks.h"
#include "key_tables.h"

namespace remora::config {
namespace {

using namespace key_builders;  // NOLINT(google-build-using-namespace): the words of the table
using namespace std::string_view_literals;  // NOLINT(google-build-using-namespace): literals only

// In the order of their enumerators.
constexpr std::array kLogLevelWords{"trace"sv, "debug"sv, "info"sv, "warn"sv, "error"sv, "off"sv};
constexpr std::array kLogFormatWords{"text"sv, "json"sv};

constexpr Access kMetricsAddress{[](ServerConfig& c, At, const Value& v) {
                                   const auto& address = std::get<std::string>(v);
                                   c.metrics.address =
                                       address == "none" ? std::nullopt : std::optional{address};
                                 },
                                 [](const ServerConfig& c, At) -> std::optional<Value> {
                                   return holding<std::string>(c.metrics.address.value_or("none"));
                                 }};

constexpr Access kAllowedHosts{[](ServerConfig& c, At, const Value& v) {
                                 c.metrics.allowed_hosts = host_names(std::get<std::string>(v));
                               },
                               [](const ServerConfig& c, At) -> std::optional<Value> {
                                 if (c.metrics.allowed_hosts.empty()) return std::nullopt;
                                 std::string text;
                                 for (const std::string& name : c.metrics.allowed_hosts)
                                   text += (text.empty() ? "" : ", ") + name;
                                 return holding<std::string>(std::move(text));
                               }};

constexpr auto kMetricsToken =
    optional_text([](auto& c, std::size_t) -> auto& { return c.metrics.token; });
constexpr auto kMetricsTokenFile =
    optional_text([](auto& c, std::size_t) -> auto& { return c.metrics.token_file; });
constexpr auto kMetricsUser =
    optional_text([](auto& c, std::size_t) -> auto& { return c.metrics.user; });
constexpr auto kMetricsPassword =
    optional_text([](auto& c, std::size_t) -> auto& { return c.metrics.password; });
constexpr auto kMetricsPasswordFile =
    optional_text([](auto& c, std::size_t) -> auto& { return c.metrics.password_file; });
constexpr auto kLogLevel =
    choice<LogLevel>([](auto& c, std::size_t) -> auto& { return c.log.level; });
constexpr auto kLogFormat =
    choice<LogFormat>([](auto& c, std::size_t) -> auto& { return c.log.format; });

constexpr std::array kReportKeys{
    group("log", KeyType::kMap, "The log on standard error."),
    worded("log.level", KeyType::kChoice, kLogLevelWords, kLogLevel,
           "Lines less severe than this are not written."),
    worded("log.format", KeyType::kChoice, kLogFormatWords, kLogFormat,
           "`json`: each line is an object with `time`, `level`, `event`, `text` and the fields of "
           "the event."),

    group("metrics", KeyType::kMap, "The HTTP endpoint for Prometheus and health checks."),
    free_text("metrics.address", "`none`, `HOST:PORT` or `[IPv6]:PORT`", is_metrics_address,
              kMetricsAddress,
              "Serves a live page at `/`, `/metrics`, `/status`, `/history`, `/healthz` and "
              "`/readyz`. Not encrypted."),
    secret(free_text("metrics.token", "printable ASCII without spaces and %, at most 1024 bytes",
                     is_token, kMetricsToken,
                     "Readers of `/metrics`, `/status` and `/history` must send it: "
                     "`Authorization: Bearer TOKEN`.")),
    free_text("metrics.token_file", "a file, seen from this file's folder", is_file_name,
              kMetricsTokenFile, "A file with `token`, instead."),
    // A file with user: NAME:PASSWORD must not bring the password into a log.
    discreet(free_text("metrics.user", "text without colons and line breaks, at most 1024 bytes",
                       is_user, kMetricsUser,
                       "The same by HTTP Basic, which browsers ask for; with `password`. Where "
                       "there is a token too, either is accepted.")),
    secret(free_text("metrics.password", "one line of at most 1024 bytes", is_password,
                     kMetricsPassword, "The password of `user`.")),
    free_text("metrics.password_file", "a file, seen from this file's folder", is_file_name,
              kMetricsPasswordFile, "A file with `password`, instead."),
    free_text("metrics.allowed_hosts", "up to 64 host names divided by commas, or `*`",
              are_host_names, kAllowedHosts,
              "Names in `Host` that the endpoint answers to, besides addresses, `localhost`, the "
              "machine's name and that of `metrics.address`; `*`: any. Other names get a 421, "
              "against DNS rebinding. `/healthz` and `/readyz` answer to any name."),
};

}  // namespace

std::span<const Key> report_keys() { return kReportKeys; }

}  // namespace remora::config
