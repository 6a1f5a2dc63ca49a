#pragma once

/// What the inputs of control_fuzz and authentication_fuzz look like: a header, then steps, each
/// with bytes of its own, which are mostly a message. So a mutator can change messages field by
/// field, and steps as a whole.
///
/// | bytes | what |
/// |-------|------|
/// | 0     | what is fuzzed |
/// | 1     | how |
/// | then for each step: | |
/// | 0     | what to do |
/// | 1 … 2 | length of its bytes, little endian |
/// | 3 …   | its bytes |

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "input.h"

namespace remora::fuzz {

struct Step {
  std::uint8_t what = 0;
  std::string bytes;
};

struct Script {
  static constexpr std::size_t kMaxSteps = 48;
  std::uint8_t mode = 0;
  std::uint8_t flags = 0;
  std::vector<Step> steps;

  /// Any bytes are a script; what is missing at the end is empty.
  static Script parse(const std::uint8_t* data, std::size_t size) {
    Input input{data, size};
    Script script;
    script.mode = input.byte();
    script.flags = input.byte();
    while (!input.empty() && script.steps.size() < kMaxSteps) {
      Step step;
      step.what = input.byte();
      const auto length = input.take<std::uint16_t>();
      const auto bytes = input.take_bytes(length);
      step.bytes.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      script.steps.push_back(std::move(step));
    }
    return script;
  }
  [[nodiscard]] std::string text() const {
    std::string text{static_cast<char>(mode), static_cast<char>(flags)};
    for (const Step& step : steps) {
      const std::size_t length = std::min<std::size_t>(step.bytes.size(), UINT16_MAX);
      text += static_cast<char>(step.what);
      text += static_cast<char>(length & 0xffU);
      text += static_cast<char>(length >> 8U);
      text.append(step.bytes, 0, length);
    }
    return text;
  }
};

/// What LLVMFuzzerTestOneInput() of both programs does: the mode selects the function, and half of
/// all modes the first.
inline int run_script(const std::uint8_t* data, std::size_t size, void (*first)(const Script&),
                      void (*second)(const Script&), void (*third)(const Script&)) {
  const auto script = Script::parse(data, size);
  switch (script.mode % 4) {
    case 0:
    case 1: first(script); break;
    case 2: second(script); break;
    default: third(script);
  }
  return 0;
}

}  // namespace remora::fuzz
