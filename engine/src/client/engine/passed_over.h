#pragma once

/// The reasons why transports of a server were not used, and the choice of the error for the
/// caller.

#include <string>
#include <vector>

#include <remora/engine/types.h>
#include <remora/result.h>

namespace remora::detail {

/// Belongs to one attempt to reach a server. One thread at a time.
class PassedOver {
 public:
  /// Length of the longest line of reason().
  static constexpr std::size_t kMaxReasonBytes = 119;

  /// Adds a transport that is not tried because of `why`.
  void skip(TransportKind kind, std::string why);
  /// Adds a transport over which no session was established.
  void add_unreached(TransportKind kind, const Error& error);
  /// Adds a transport over which the server has admitted the client and refused the region.
  void add_answered(TransportKind kind, const Error& error);

  /// The most useful error for the caller: an answer of a server before a failure to connect; among
  /// these the error over tcp, which needs least, before the others. If a server of this host
  /// listens at another address, the subject names that address.
  [[nodiscard]] Error cause() const;
  /// Why `chosen` was used: one line of at most kMaxReasonBytes bytes.
  [[nodiscard]] std::string reason(TransportKind chosen, std::string_view why) const;
  /// All errors with all details, for the log.
  [[nodiscard]] std::string text() const;

 private:
  struct Transport {
    TransportKind kind;
    Error error;
    bool answered;
  };
  struct Skipped {
    TransportKind kind;
    std::string why;
  };
  [[nodiscard]] static int usefulness(const Transport& transport) noexcept;
  std::vector<Skipped> skipped_;
  std::vector<Transport> tried_;
};

}  // namespace remora::detail
