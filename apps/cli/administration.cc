/// remora sessions, drain, ping: the commands of an administrator for a running server.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <remora/config/units.h>

#include "cli/command.h"
#include "cli/commands.h"
#include "cli/human.h"
#include "cli/interrupt.h"
#include "cli/table.h"

namespace remora::apps {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

double as_seconds(nanoseconds time) { return std::chrono::duration<double>{time}.count(); }

struct SessionsOptions {
  std::string uri;
  std::optional<std::uint64_t> end;
};

Json session_json(const SessionInfo& session) {
  return Json{{"id", hex_digits(session.id)},
              {"client", session.client_name},
              {"client_proven", session.client_proven},
              {"transport", to_string(session.transport)},
              {"peer", session.peer},
              {"device", session.device},
              {"age_seconds", as_seconds(session.age)},
              {"open", session.open_regions},
              {"lost", session.lost},
              {"own", session.own}};
}

/// The special states of a session.
std::string state_of(const SessionInfo& session) {
  if (session.own) return "this command";
  return session.lost ? "waits for its client" : "";
}

void print_sessions(const std::vector<SessionInfo>& sessions) {
  std::vector<std::vector<std::string>> rows{
      {"ID", "CLIENT", "KEY", "TRANSPORT", "PEER", "AGE", "OPEN", "STATE"}};
  for (const SessionInfo& session : sessions) {
    const auto age = std::chrono::duration_cast<std::chrono::seconds>(session.age);
    rows.push_back({hex_digits(session.id), session.client_name,
                    session.client_proven ? "yes" : "no", std::string{to_string(session.transport)},
                    session.peer, std::to_string(age.count()) + "s",
                    std::to_string(session.open_regions), state_of(session)});
  }
  print_table(std::move(rows));
  std::cout << sessions.size() << (sessions.size() == 1 ? " session" : " sessions") << '\n';
}

Outcome end_one(const Globals& globals, const Session& session, const SessionsOptions& options) {
  const std::string id = hex_digits(*options.end);
  if (const Status ended = session.end_session(*options.end); !ended)
    return fail(ended.error(), "sessions " + options.uri + " --end " + id);
  if (globals.json)
    print_json(Json{{"ended", id}});
  else
    std::cout << "ended " << id << '\n';
  return ExitCode::kOk;
}

Outcome show_sessions(const Globals& globals, const SessionsOptions& options) {
  if (const auto uri = parse_uri(options.uri, false); !uri) return tl::make_unexpected(uri.error());
  const auto session = open_session(globals, options.uri);
  if (!session) return tl::make_unexpected(session.error());
  if (options.end) return end_one(globals, *session, options);
  const auto all = session->sessions();
  if (!all) return fail(all.error(), "sessions " + options.uri);
  if (!globals.json) {
    print_sessions(*all);
    return ExitCode::kOk;
  }
  Json list = Json::array();
  for (const SessionInfo& each : *all) list.push_back(session_json(each));
  print_json(Json{{"sessions", std::move(list)}});
  return ExitCode::kOk;
}

struct DrainOptions {
  std::string uri;
  nanoseconds wait{0};
  bool undo = false;
};

Json drain_json(const DrainState& state) {
  return Json{{"draining", state.draining},
              {"remaining_seconds", as_seconds(state.remaining)},
              {"sessions", state.sessions},
              {"lost_sessions", state.lost_sessions},
              {"open", state.open_regions}};
}

std::string counts_of(const DrainState& state) {
  return std::to_string(state.sessions) + " other sessions, " +
         std::to_string(state.lost_sessions) + " that wait for their clients, " +
         std::to_string(state.open_regions) + " open regions";
}

/// Polls the server until all other sessions have gone.
Result<DrainState> await_others(const Session& session, DrainState state, nanoseconds patience) {
  constexpr milliseconds kPause{200};
  const auto until = std::chrono::steady_clock::now() + patience;
  while (state.sessions + state.lost_sessions != 0) {
    if (std::chrono::steady_clock::now() >= until)
      return Error{Code::kTimedOut, "drain"}.with_subject("left: " + counts_of(state));
    std::this_thread::sleep_for(kPause);
    const auto next = session.drain_state();
    if (!next) return next.error();
    state = *next;
  }
  return state;
}

Outcome drain_server(const Globals& globals, const DrainOptions& options) {
  if (const auto uri = parse_uri(options.uri, false); !uri) return tl::make_unexpected(uri.error());
  const auto session = open_session(globals, options.uri);
  if (!session) return tl::make_unexpected(session.error());
  auto state = options.undo ? session->end_drain() : session->drain();
  if (state && options.wait > options.wait.zero())
    state = await_others(*session, *state, options.wait);
  if (!state) return fail(state.error(), "drain " + options.uri);
  if (globals.json)
    print_json(drain_json(*state));
  else
    std::cout << (state->draining ? "draining: " : "not draining: ") << counts_of(*state) << '\n';
  return ExitCode::kOk;
}

struct PingOptions {
  std::string uri;
  std::uint32_t count = 5;
  nanoseconds interval = std::chrono::seconds{1};
};

/// False: a signal has arrived.
bool pause_for(nanoseconds time) {
  constexpr nanoseconds kStep = milliseconds{50};
  for (; time > time.zero() && interrupted() == 0; time -= kStep)
    std::this_thread::sleep_for(std::min(time, kStep));
  return interrupted() == 0;
}

struct PingTimes {
  std::vector<double> all{};  ///< seconds
  [[nodiscard]] double shortest() const { return *std::min_element(all.begin(), all.end()); }
  [[nodiscard]] double longest() const { return *std::max_element(all.begin(), all.end()); }
  [[nodiscard]] double mean() const {
    double sum = 0;
    for (const double each : all) sum += each;
    return sum / static_cast<double>(all.size());
  }
};

void print_times(const Globals& globals, const Session& session, const PingTimes& times) {
  constexpr double kNanoseconds = 1e9;
  if (globals.json) {
    print_json(Json{{"transport", to_string(session.transport())},
                    {"answers", times.all},
                    {"shortest_seconds", times.shortest()},
                    {"mean_seconds", times.mean()},
                    {"longest_seconds", times.longest()}});
    return;
  }
  std::cout << times.all.size() << (times.all.size() == 1 ? " answer" : " answers") << ": shortest "
            << human_nanoseconds(times.shortest() * kNanoseconds) << ", mean "
            << human_nanoseconds(times.mean() * kNanoseconds) << ", longest "
            << human_nanoseconds(times.longest() * kNanoseconds) << '\n';
}

Outcome ping_server(const Globals& globals, const PingOptions& options) {
  const auto uri = parse_uri(options.uri, false);
  if (!uri) return tl::make_unexpected(uri.error());
  if (options.count == 0) return fail(ExitCode::kUsage, "--count 0: want at least 1");
  const auto session = open_session(globals, options.uri);
  if (!session) return tl::make_unexpected(session.error());
  catch_interrupts();  // results until then are printed
  PingTimes times;
  while (times.all.size() < options.count) {
    const auto took = session->ping();
    if (!took) return fail(took.error(), "ping " + options.uri);
    times.all.push_back(as_seconds(*took));
    if (!globals.json)
      std::cout << "answer " << times.all.size() << " over " << to_string(session->transport())
                << ": " << human_nanoseconds(static_cast<double>(took->count())) << std::endl;
    if (times.all.size() == options.count || !pause_for(options.interval)) break;
  }
  print_times(globals, *session, times);
  return ExitCode::kOk;
}

/// The ID that `remora sessions` prints, with or without 0x.
std::optional<std::uint64_t> parse_id(std::string_view text) {
  if (text.starts_with("0x")) text.remove_prefix(2);
  std::uint64_t id = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, id, 16);
  if (text.empty() || parsed.ec != std::errc{} || parsed.ptr != end) return std::nullopt;
  return id;
}

void add_sessions(Commands& commands) {
  const auto options = std::make_shared<SessionsOptions>();
  CLI::App* const command = commands.add("sessions", "List the sessions of a server, or end one");
  add_uri(command, options->uri, true);
  command
      ->add_option_function<std::string>(
          "--end",
          [options](const std::string& text) {
            options->end = parse_id(text);
            if (!options->end)
              throw CLI::ValidationError("--end", "'" + text + "' is no ID of 'remora sessions'");
          },
          "End the session of this ID; its client cannot resume it")
      ->type_name("ID");
  Commands::on_run(command,
                   [&commands, options] { return show_sessions(commands.globals(), *options); });
}

void add_drain(Commands& commands) {
  const auto options = std::make_shared<DrainOptions>();
  CLI::App* const command =
      commands.add("drain", "Tell the clients of a server to leave, and open no region any more");
  add_uri(command, options->uri, true);
  CLI::Option* const wait = add_duration(
      command, "--wait", options->wait, "Wait until all other sessions have gone, at most so long");
  command->add_flag("--undo", options->undo, "End the drain: regions are opened again")
      ->excludes(wait);
  Commands::on_run(command,
                   [&commands, options] { return drain_server(commands.globals(), *options); });
}

void add_ping(Commands& commands) {
  const auto options = std::make_shared<PingOptions>();
  CLI::App* const command = commands.add("ping", "Measure how long a server takes to answer");
  add_uri(command, options->uri, true);
  command->add_option("--count", options->count, "How often (5)")->type_name("NUMBER");
  add_duration(command, "--interval", options->interval, "Time between two of them (1s)");
  Commands::on_run(command,
                   [&commands, options] { return ping_server(commands.globals(), *options); });
}

}  // namespace

void add_administration_commands(Commands& commands) {
  add_sessions(commands);
  add_drain(commands);
  add_ping(commands);
}

}  // namespace remora::apps
