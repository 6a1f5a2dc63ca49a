#pragma once

/// Why transports of a server were passed over, and which of these causes the caller is told.

#include <string>
#include <vector>

#include <remora/engine/types.h>
#include <remora/result.h>

namespace remora::detail {

class PassedOver {
 public:
  /// Longest line of reason().
  static constexpr std::size_t kMaxReasonBytes = 119;

  /// A transport that is not tried, for what `why` says.
  void skip(TransportKind kind, std::string why);
  /// A transport over which no session came about.
  void add_unreached(TransportKind kind, const Error& error);
  /// A transport over which the server has let the client in, and then refused the region.
  void add_answered(TransportKind kind, const Error& error);

  /// What helps the caller most: what the server has answered, before why no connection came about;
  /// of these the one over tcp, which needs the least, before the others. Where a server of this
  /// host listens at another address, the subject names that address.
  [[nodiscard]] Error cause() const;
  /// Why `chosen` was taken: one line of at most kMaxReasonBytes bytes.
  [[nodiscard]] std::string reason(TransportKind chosen, std::string_view why) const;
  /// All causes in full, for the log.
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
