#pragma once

/// The possible next words of a command line, for the completion of shells.

#include <string>
#include <vector>

#include "cli/command.h"

namespace remora::apps {

/// The word that requests a completion: `remora __complete WORD...`. Not for users, and in no help.
inline constexpr const char* kCompleteWord = "__complete";

struct LineCandidate {
  std::string word;
  std::string help;
};

struct LineCompletion {
  std::vector<LineCandidate> candidates{};
  bool files = false;  ///< names of files, which the shell completes itself
};

/// `words`: the line without the program's name; the last word is completed and may be empty. `app`
/// has all commands. Regions come from the server that the word names: with the client and key of
/// `words` or of the environment, and within a second; none if the server does not answer. Volumes
/// come from the store of the cluster that the word names, in the same way.
[[nodiscard]] LineCompletion complete(const CLI::App& app, const std::vector<std::string>& words);

/// Prints one candidate on each line, with its help after a tab; a line `:files` if names of files
/// may follow.
void print_completion(const LineCompletion& completion);

}  // namespace remora::apps
