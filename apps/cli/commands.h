#pragma once

#include <functional>
#include <string>

#include "cli/command.h"

namespace remora::apps {

/// The command line: subcommands add themselves to `app`, and set their action by on_run().
class Commands {
 public:
  explicit Commands(CLI::App& app) : app_{app} {}

  /// A new subcommand of `parent` (null: of the program itself).
  CLI::App* add(const std::string& name, const std::string& description,
                CLI::App* parent = nullptr);
  /// The action of `subcommand` once the command line has been parsed.
  static void on_run(CLI::App* subcommand, std::function<Outcome()> action);

  [[nodiscard]] const Globals& globals() const noexcept { return globals_; }
  [[nodiscard]] Globals& globals() noexcept { return globals_; }

 private:
  CLI::App& app_;
  Globals globals_;
};

/// The action of the subcommand that was parsed last; set by Commands::on_run().
std::function<Outcome()>& chosen_action();

// The subcommands; each of these functions has a file of its own.
void add_admin_commands(Commands& commands);           // ls create stat resize rm
void add_administration_commands(Commands& commands);  // sessions drain ping
void add_transfer_commands(Commands& commands);        // put get
void add_access_commands(Commands& commands);          // read write cas add
void add_bench_command(Commands& commands);
void add_config_commands(Commands& commands);  // config check, show, init, schema
void add_key_commands(Commands& commands);     // key generate, usage
void add_top_command(Commands& commands);
void add_doctor_command(Commands& commands);
void add_cluster_commands(Commands& commands);  // cluster status, drain, new-generation
void add_volume_commands(
    Commands& commands);  // volume create, ls, stat, resize, rm, export, import
/// repair, rebalance, add-copy, accept-loss, claim and release, under `group`.
void add_volume_maintenance_commands(Commands& commands, CLI::App* group);

}  // namespace remora::apps
