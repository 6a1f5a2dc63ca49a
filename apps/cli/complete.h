#pragma once

/// What may stand next on the command line, for the completion of shells.

#include <string>
#include <vector>

#include "cli/command.h"

namespace remora::apps {

/// `remora __complete WORD...`: the word that asks for it. No command of users, and in no help.
inline constexpr const char* kCompleteWord = "__complete";

struct LineCandidate {
  std::string word;
  std::string help;
};

struct LineCompletion {
  std::vector<LineCandidate> candidates{};
  bool files = false;  ///< names of files, which the shell knows better
};

/// `words`: the line without the program's name; the last one is completed and may be empty. `app`
/// has all commands. Regions come from the server that the word names: with the client and key of
/// `words` or of the environment, and within a second; none if it does not answer.
[[nodiscard]] LineCompletion complete(const CLI::App& app, const std::vector<std::string>& words);

/// A candidate a line, with its help behind a tab; a line `:files` where files may follow.
void print_completion(const LineCompletion& completion);

}  // namespace remora::apps
