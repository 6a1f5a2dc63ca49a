#include "common/usage_error.h"

#include <string_view>
#include <vector>

#include <remora/config/nearest.h>

namespace remora::apps {
namespace {

/// The subcommand that was recognised last, and its full name: "remora config check".
struct Chosen {
  const CLI::App* command;
  std::string call;
};

Chosen chosen_command(const CLI::App& app, const std::string& program) {
  Chosen chosen{&app, program};
  while (!chosen.command->get_subcommands().empty()) {
    chosen.command = chosen.command->get_subcommands().back();
    chosen.call += " " + chosen.command->get_name();
  }
  return chosen;
}

std::vector<const CLI::App*> subcommands_of(const CLI::App& command) {
  return command.get_subcommands([](const CLI::App*) { return true; });
}

/// The long options of `command` and of the enclosing commands: they may follow it, too.
std::vector<std::string_view> options_of(const CLI::App* command) {
  std::vector<std::string_view> names;
  for (; command != nullptr; command = command->get_parent())
    for (const CLI::Option* option : command->get_options())
      for (const std::string& name : option->get_lnames()) names.push_back(name);
  return names;
}

std::string unknown_option(const std::string& word, const CLI::App& command) {
  const std::string name = word.substr(0, word.find('='));
  const auto known = options_of(&command);
  const std::string_view bare = std::string_view{name}.substr(name.find_first_not_of('-'));
  const std::string_view near = config::nearest(bare, known);
  return "unknown option " + name +
         (near.empty() ? "" : "; did you mean --" + std::string{near} + "?");
}

std::string unknown_command(const std::string& word, const CLI::App& command) {
  std::vector<std::string_view> known;
  for (const CLI::App* subcommand : subcommands_of(command))
    known.push_back(subcommand->get_name());
  const std::string_view near = config::nearest(word, known);
  return "unknown command '" + word + "'" +
         (near.empty() ? "" : "; did you mean '" + std::string{near} + "'?");
}

/// The first word that is not recognised; empty: all are.
std::string unknown_word(const CLI::App& app, const CLI::App& command) {
  for (const std::string& word : app.remaining(true)) {
    if (word.find_first_not_of('-') == std::string::npos) continue;  // "--" and "-"
    if (word.starts_with('-')) return unknown_option(word, command);
    const bool wants_command =
        command.get_subcommands().empty() && !subcommands_of(command).empty();
    return wants_command ? unknown_command(word, command) : "unexpected argument '" + word + "'";
  }
  return {};
}

}  // namespace

std::string explain_usage(const CLI::App& app, const CLI::ParseError& error,
                          const std::string& program) {
  const Chosen chosen = chosen_command(app, program);
  std::string what = unknown_word(app, *chosen.command);
  if (what.empty()) what = error.what();
  return what + (what.ends_with('?') ? " '" : "; '") + chosen.call + " --help' shows what is right";
}

}  // namespace remora::apps
