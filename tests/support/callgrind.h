#pragma once

/// Instructions of a program, counted by callgrind: unlike time they do not depend on the load.

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include <remora/sanitizers.h>

namespace remora::test {

inline constexpr bool kThreadSanitized = REMORA_THREAD_SANITIZER == 1;
inline constexpr bool kSanitized = kThreadSanitized || REMORA_ADDRESS_SANITIZER == 1;

inline std::string output_of(const std::string& command) {
  std::string output;
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe{::popen(command.c_str(), "r"), ::pclose};
  if (pipe == nullptr) return output;
  for (int c = std::fgetc(pipe.get()); c != EOF; c = std::fgetc(pipe.get()))
    output += static_cast<char>(c);
  return output;
}

/// Why nothing can be counted here; empty: it can.
inline std::string why_uncountable() {
  if (kSanitized) return "a sanitized build has other instructions";
  if (output_of("valgrind --version 2>&1").find("valgrind-") == std::string::npos)
    return "valgrind is not installed";
  return {};
}

/// Instructions a round of `command ROUNDS`, in what the program lets count (support/counted.h).
/// Callgrind needs a second to start and a tenth of it to count: what a program does once, it does
/// before it lets count, so that one count is enough. Nothing: the program has failed, which would
/// be few instructions, or callgrind has counted none.
inline std::optional<double> instructions_a_round(const std::string& command, int rounds) {
  const std::string succeeded = "the program has succeeded";
  const std::string output =
      output_of("valgrind --tool=callgrind --instr-atstart=no --callgrind-out-file=/dev/null " +
                command + " " + std::to_string(rounds) + " 2>&1 && echo " + succeeded);
  const std::string label = "Collected : ";
  const std::size_t at = output.find(label);
  const double counted =
      at == std::string::npos ? 0 : std::strtod(output.c_str() + at + label.size(), nullptr);
  if (counted > 0 && output.find(succeeded) != std::string::npos) return counted / rounds;
  std::fputs(output.c_str(), stderr);
  return std::nullopt;
}

}  // namespace remora::test
