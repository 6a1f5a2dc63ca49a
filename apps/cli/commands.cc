#include "cli/commands.h"

#include <CLI/CLI.hpp>
#include <utility>

namespace remora::apps {

std::function<Outcome()>& chosen_action() {
  static std::function<Outcome()> action;
  return action;
}

CLI::App* Commands::add(const std::string& name, const std::string& description, CLI::App* parent) {
  CLI::App* const made = (parent == nullptr ? &app_ : parent)->add_subcommand(name, description);
  made->fallthrough();  // --json and --timeout may follow the subcommand
  return made;
}

void Commands::on_run(CLI::App* subcommand, std::function<Outcome()> action) {
  subcommand->callback([action = std::move(action)] { chosen_action() = action; });
}

}  // namespace remora::apps
