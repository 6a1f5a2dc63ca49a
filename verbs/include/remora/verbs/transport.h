#pragma once

/// Transports as types, so that an operation that a transport does not support does not compile.
///
/// |                                 | Rc  | Uc  | Ud  |
/// |---------------------------------|-----|-----|-----|
/// | connect to one peer             | yes | yes | no  |
/// | send, with immediate            | yes | yes | yes, to a `DatagramPeer` |
/// | write, with immediate           | yes | yes | no  |
/// | read, compare-swap, fetch-add   | yes | no  | no  |
/// | time-outs, retries, read depths | yes | no  | no  |
/// | memory windows                  | yes | yes | no  |
///
/// Source: InfiniBand Architecture Specification 1.4, 9.4; ibv_post_send(3).

#include <concepts>
#include <infiniband/verbs.h>

namespace remora::verbs {

/// Reliable connected: ordered, acknowledged, one peer; every operation.
struct Rc {
  static constexpr ibv_qp_type kType = IBV_QPT_RC;
  static constexpr bool kConnected = true;
  static constexpr bool kReliable = true;
  static constexpr bool kWrites = true;
  static constexpr bool kReads = true;
  static constexpr bool kAtomics = true;
};

/// Unreliable connected: ordered, one peer, no acknowledgements. A lost packet loses its message,
/// and neither sender nor receiver learns of it.
struct Uc {
  static constexpr ibv_qp_type kType = IBV_QPT_UC;
  static constexpr bool kConnected = true;
  static constexpr bool kReliable = false;
  static constexpr bool kWrites = true;
  static constexpr bool kReads = false;
  static constexpr bool kAtomics = false;
};

/// Unreliable datagrams: messages of at most one path MTU to any peer. A receive gets 40 bytes
/// (the global route header) before the message: `kDatagramHeaderBytes`.
struct Ud {
  static constexpr ibv_qp_type kType = IBV_QPT_UD;
  static constexpr bool kConnected = false;
  static constexpr bool kReliable = false;
  static constexpr bool kWrites = false;
  static constexpr bool kReads = false;
  static constexpr bool kAtomics = false;
};

/// A type that names a transport.
template <typename T>
concept Transport = requires {
  { T::kType } -> std::convertible_to<ibv_qp_type>;
  { T::kConnected } -> std::convertible_to<bool>;
  { T::kReliable } -> std::convertible_to<bool>;
  { T::kWrites } -> std::convertible_to<bool>;
  { T::kReads } -> std::convertible_to<bool>;
  { T::kAtomics } -> std::convertible_to<bool>;
};

}  // namespace remora::verbs
