#pragma once

/// An opener of members that tells at which step a mirror's writer is, and that may reach servers
/// by other addresses.
///
/// | step | when |
/// |---|---|
/// | `fence.before`, `fence.ended` | around each fence: behind the transaction of the claim |
/// | `header.ROLE.MOMENT` | the header of a member is written |
/// | `mark.ROLE.MOMENT` | a word of the bitmap is written, to set or to clear bits |
/// | `data.ROLE.MOMENT` | bytes are written |
///
/// ROLE is `primary` (the member whose region the opener was given as such) or `backup`; MOMENT is
/// `before` (nothing is posted), `posted` (its end is not known) or `ended`.

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "member_opener.h"
#include "step_hook.h"

namespace remora::fault {

/// Passes everything on to the engine's opener. Thread-safe, as that one.
class StepOpener final : public volume::detail::MemberOpener {
 public:
  struct Options {
    std::uint64_t data_offset = 0;  ///< where the bytes of a group begin in a member's region
    std::string primary_region{};
    std::map<std::string, std::string> addresses{};  ///< by the server's name; empty: as usual
  };
  StepOpener(std::shared_ptr<volume::detail::MemberOpener> inner, Options options,
             std::shared_ptr<StepHook> hook);

  Result<std::shared_ptr<volume::detail::MirrorMember>> open(const volume::Member& member) override;
  Result<std::shared_ptr<volume::detail::MirrorMember>> fence(
      const volume::Member& member) override;

 private:
  [[nodiscard]] volume::Member routed(const volume::Member& member) const;
  Result<std::shared_ptr<volume::detail::MirrorMember>> watched(
      Result<std::shared_ptr<volume::detail::MirrorMember>> opened,
      const volume::Member& member) const;

  const std::shared_ptr<volume::detail::MemberOpener> inner_;
  const Options options_;
  const std::shared_ptr<StepHook> hook_;
};

}  // namespace remora::fault
