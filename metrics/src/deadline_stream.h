#pragma once

#include <array>
#include <cstddef>
#include <httplib.h>
#include <string>
#include <string_view>
#include <utility>

#include "http_socket.h"
#include "stop_signal.h"

namespace remora::metrics {

/// A connection that ends at a deadline whatever its peer does, and limits the bytes that it reads.
class DeadlineStream final : public httplib::Stream {
 public:
  /// `head`: the bytes of the head that were read already.
  DeadlineStream(int fd, const StopSignal& stop, Deadline deadline, std::string head) noexcept
      : fd_{fd},
        stop_{stop},
        deadline_{deadline},
        head_{std::move(head)},
        received_bytes_{head_.size()} {}

  [[nodiscard]] bool is_readable() const override;
  [[nodiscard]] bool is_writable() const override;
  ssize_t read(char* data, std::size_t size) override;
  ssize_t write(const char* data, std::size_t size) override;
  /// Empty: no route needs the address of the peer.
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  [[nodiscard]] socket_t socket() const override { return fd_; }

  /// Bytes that were read before the stream was made.
  [[nodiscard]] std::string_view head() const noexcept { return head_; }
  /// Ends the stream and waits briefly for the peer's end: otherwise unread bytes of the peer (a
  /// body) would cause a reset, by which the peer loses the answer.
  void finish() noexcept;

 private:
  int fd_;
  const StopSignal& stop_;
  Deadline deadline_;
  std::string head_;
  std::size_t head_read_bytes_ = 0;
  std::array<char, 4096> buffer_{};  ///< the parser reads byte by byte
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::size_t received_bytes_;
};

}  // namespace remora::metrics
