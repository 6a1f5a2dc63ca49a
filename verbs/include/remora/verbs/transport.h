#pragma once

/// Transports as types, so that what a transport cannot do does not compile.

#include <concepts>
#include <infiniband/verbs.h>

namespace remora::verbs {

/// Reliable connected: ordered, acknowledged, one peer; every operation.
struct Rc {
  static constexpr ibv_qp_type kType = IBV_QPT_RC;
  static constexpr bool kConnected = true;
  static constexpr bool kWrites = true;
  static constexpr bool kReads = true;
  static constexpr bool kAtomics = true;
};

/// What names a transport. UC and UD have their place here.
template <typename T>
concept Transport = requires {
  { T::kType } -> std::convertible_to<ibv_qp_type>;
  { T::kConnected } -> std::convertible_to<bool>;
  { T::kWrites } -> std::convertible_to<bool>;
  { T::kReads } -> std::convertible_to<bool>;
  { T::kAtomics } -> std::convertible_to<bool>;
};

}  // namespace remora::verbs
