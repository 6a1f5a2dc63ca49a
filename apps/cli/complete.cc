#include "cli/complete.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string_view>
#include <utility>

#include <remora/config/printable.h>
#include <remora/config/server_config.h>
#include <remora/config/units.h>

#include "cli/volumes.h"

namespace remora::apps {
namespace {

constexpr std::string_view kUriScheme = "remora://";
constexpr std::array kUriSchemes{kUriScheme, std::string_view{"remora+etcd://"},
                                 std::string_view{"remora+file://"}};

/// The possible words of a value, by the name of its type in the help.
struct ValueWords {
  std::string_view type;
  std::array<std::string_view, 4> words;
};
constexpr std::array kValueWords{
    ValueWords{"DOMAIN", {"auto", "none", "cpu", ""}},
    ValueWords{"RIGHTS", {"read", "read,write", "read,write,atomic", ""}},
    ValueWords{"MIX", {"read", "write", "cas", "add"}},
    ValueWords{"ALGORITHM", {"sha256", "sha512", "blake2b", "none"}}};

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

/// The option of `command`, or of an enclosing one, that `word` names; null: none.
const CLI::Option* find_option(const CLI::App* command, std::string_view word) {
  const bool is_long = word.starts_with("--");
  const std::string name{word.substr(is_long ? 2 : 1)};
  for (; command != nullptr; command = command->get_parent())
    for (const CLI::Option* option : command->get_options()) {
      const std::vector<std::string>& names = is_long ? option->get_lnames() : option->get_snames();
      if (std::find(names.begin(), names.end(), name) != names.end()) return option;
    }
  return nullptr;
}

std::vector<const CLI::App*> commands_of(const CLI::App& command) {
  return command.get_subcommands([](const CLI::App*) { return true; });
}

/// The line up to the word that is completed.
class Line {
 public:
  explicit Line(const CLI::App& app) : command_{&app} {
    for (const auto& [variable, name] :
         {std::pair{"REMORA_CLIENT", "--client"}, std::pair{"REMORA_KEY_FILE", "--key-file"}})
      if (const char* const value = std::getenv(variable); value != nullptr) keep(name, value);
  }

  void take(const std::string& word) {
    if (wanted_ != nullptr) {
      keep(option_name_, word);
      wanted_ = nullptr;
      return;
    }
    if (word.starts_with('-') && word.size() > 1) {
      take_option(word);
      return;
    }
    for (const CLI::App* each : commands_of(*command_))
      if (each->get_name() == word) {
        command_ = each;
        return;
      }
    ++arguments_;
  }

  [[nodiscard]] const CLI::App& command() const noexcept { return *command_; }
  /// The option whose value comes next, or null.
  [[nodiscard]] const CLI::Option* wanted() const noexcept { return wanted_; }
  [[nodiscard]] const Globals& globals() const noexcept { return globals_; }

  /// The argument to which the next word belongs; the last argument may take several.
  [[nodiscard]] const CLI::Option* argument() const {
    const CLI::Option* found = nullptr;
    std::size_t index = 0;
    for (const CLI::Option* option : command_->get_options()) {
      if (!option->get_positional()) continue;
      found = option;
      if (index++ == arguments_) return found;
    }
    return found != nullptr && found->get_items_expected_max() > 1 ? found : nullptr;
  }

 private:
  void take_option(const std::string& word) {
    const std::size_t equals = word.find('=');
    option_name_ = word.substr(0, equals);
    const CLI::Option* const option = find_option(command_, option_name_);
    if (equals != std::string::npos)
      keep(option_name_, word.substr(equals + 1));
    else if (option != nullptr && takes_value(*option))
      wanted_ = option;
  }

  void keep(std::string_view name, const std::string& value) {
    if (name == "--client") globals_.client = value;
    if (name == "--key-file") globals_.key_file = value;
    if (const auto timeout = config::parse_duration(value); name == "--timeout" && timeout)
      globals_.timeout = *timeout;
  }

  const CLI::App* command_;
  const CLI::Option* wanted_ = nullptr;
  std::string option_name_{};
  std::size_t arguments_ = 0;
  /// How long Tab waits for a server, unless the line has --timeout.
  Globals globals_{.timeout = std::chrono::seconds{1}};
};

/// Keeps the candidates that begin with the word.
class Found {
 public:
  explicit Found(std::string_view word) : word_{word} {}

  void add(std::string candidate, std::string help = {}) {
    if (candidate.starts_with(word_))
      completion_.candidates.push_back({std::move(candidate), std::move(help)});
  }
  void add_files() { completion_.files = true; }
  [[nodiscard]] LineCompletion take() { return std::move(completion_); }

 private:
  std::string_view word_;
  LineCompletion completion_{};
};

void add_regions(Found& found, const Globals& globals, const std::string& server) {
  const auto engine = open_engine(globals);
  if (!engine) return;
  const auto session = engine->connect(server);
  if (!session) return;
  const auto regions = session->regions();
  if (!regions) return;
  for (const RegionInfo& region : *regions)
    // Only valid names from a server are passed to a shell.
    if (config::is_region_name(region.name)) found.add(server + "/" + region.name);
}

/// The volumes of the cluster before the last slash.
void add_volumes(Found& found, const Globals& globals, const std::string& word) {
  const std::string cluster = word.substr(0, word.rfind('/'));
  const std::string folder = cluster + "/";
  for (const std::string& name : volumes_in(cluster, globals.timeout))  // each is a valid one
    found.add(folder + name);
}

/// `forms`: the URIs that the argument takes, as its description has them.
void add_uris(Found& found, const std::string& word, std::string_view forms,
              const Globals& globals) {
  const auto takes = [forms](std::string_view part) {
    return forms.find(part) != std::string_view::npos;
  };
  for (const std::string_view scheme : kUriSchemes)
    if (takes(scheme) && !word.starts_with(scheme)) found.add(std::string{scheme});
  if (is_cluster_uri(word) && takes("/VOLUME")) add_volumes(found, globals, word);
  if (!word.starts_with(kUriScheme) || !takes(kUriScheme)) return;
  if (const std::size_t query = word.find('?'); query != std::string::npos) {
    for (const char* const transport : {"rdma", "shm", "tcp"})
      found.add(word.substr(0, query) + "?transport=" + transport);
    return;
  }
  const std::size_t slash = word.find('/', kUriScheme.size());
  if (!takes("/REGION") || slash == std::string::npos || slash == kUriScheme.size()) return;
  add_regions(found, globals, word.substr(0, slash));
}

void add_values(Found& found, const CLI::Option& option) {
  const std::string type = option.get_type_name();
  if (type == "FILE") found.add_files();
  for (const ValueWords& each : kValueWords)
    if (each.type == type)
      for (const std::string_view word : each.words)
        if (!word.empty()) found.add(std::string{word});
}

void add_options(Found& found, const CLI::App* command) {
  for (; command != nullptr; command = command->get_parent())
    for (const CLI::Option* option : command->get_options())
      for (const std::string& name : option->get_lnames())
        found.add("--" + name, option->get_description());
}

void add_argument(Found& found, const CLI::Option& argument, const std::string& word,
                  const Globals& globals) {
  const std::string name = argument.get_name(true);
  if (name == "FILE") found.add_files();
  if (name == "URI") add_uris(found, word, argument.get_description(), globals);
}

}  // namespace

LineCompletion complete(const CLI::App& app, const std::vector<std::string>& words) {
  Line line{app};
  const std::string last = words.empty() ? std::string{} : words.back();
  for (std::size_t i = 0; i + 1 < words.size(); ++i) line.take(words[i]);
  Found found{last};
  if (line.wanted() != nullptr) {
    add_values(found, *line.wanted());
  } else if (last.starts_with('-')) {
    add_options(found, &line.command());
  } else if (const auto commands = commands_of(line.command()); !commands.empty()) {
    for (const CLI::App* each : commands)
      if (!each->get_group().empty()) found.add(each->get_name(), each->get_description());
  } else if (const CLI::Option* const argument = line.argument(); argument != nullptr) {
    add_argument(found, *argument, last, line.globals());
  }
  return found.take();
}

void print_completion(const LineCompletion& completion) {
  for (const LineCandidate& candidate : completion.candidates)
    std::cout << candidate.word << '\t' << config::printable(candidate.help) << '\n';
  if (completion.files) std::cout << ":files\n";
}

}  // namespace remora::apps
