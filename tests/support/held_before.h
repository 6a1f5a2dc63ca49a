#pragma once

/// I8 for a test that has a server and its peers in this process: what the process held before them
/// it holds again behind them.

#include <functional>
#include <optional>
#include <string>

#include <remora/engine/server.h>

#include "support/resources.h"

namespace remora::test {

class HeldBefore {
 public:
  /// Takes the baseline. Before that, for the first of this name in a process, calls `warm_up`:
  /// what libraries make at their first use and keep must be made by then.
  HeldBefore(const std::string& name, const std::function<void()>& warm_up);

  /// Expects that the server's sessions and grants have ended by themselves, stops it, and expects
  /// that all is given back. To be called when the test's clients are gone.
  void expect_again(std::optional<Server>& server) const;

 private:
  std::optional<Resources> baseline_;
};

}  // namespace remora::test
