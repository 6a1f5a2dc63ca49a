#pragma once

/// The faults of a configuration, all of them at once.
///
/// Every fault of a file is reported at once, each with its place, so that the user can correct the
/// file at once: a list, whereas `Error` holds one fault. Editors and CI logs turn the printed form
/// into links: `file:line:column: key: message`.
///
/// Thread safety: values.

#include <cstddef>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace remora::config {

/// One fault and its place.
struct Diagnostic {
  std::string file;        ///< as it was given; empty for a ServerConfig filled by hand
  std::size_t line = 0;    ///< from 1; 0: no line (a file that cannot be read)
  std::size_t column = 0;  ///< from 1, in bytes; 0: no column
  std::string key;         ///< path such as `regions[0].size`; empty: no key
  std::string message;     ///< the fault and the correct form; one line, no full stop

  /// `file:line:column: key: message`, without the parts that are empty.
  [[nodiscard]] std::string to_string() const;

  friend bool operator==(const Diagnostic&, const Diagnostic&) = default;
};

/// A list of faults in the order of the file. Empty means that nothing is wrong.
class [[nodiscard]] Diagnostics {
 public:
  /// The most faults that are kept; later ones are only counted.
  static constexpr std::size_t kMax = 100;

  /// Appends a fault, or counts it if there are kMax already.
  void add(Diagnostic diagnostic);
  /// Stable by line and column; faults without a line come first.
  void sort_by_place();

  /// True: no fault was found.
  [[nodiscard]] bool empty() const noexcept { return list_.empty(); }
  /// The faults that are kept, at most kMax.
  [[nodiscard]] std::size_t size() const noexcept { return list_.size(); }
  /// The number of faults beyond kMax, which were dropped.
  [[nodiscard]] std::size_t dropped() const noexcept { return dropped_; }
  /// `index` < size(): nothing checks that.
  [[nodiscard]] const Diagnostic& operator[](std::size_t index) const { return list_[index]; }
  /// The faults as they were added, or by place after sort_by_place(); valid as long as this
  /// object.
  [[nodiscard]] auto begin() const noexcept { return list_.begin(); }
  /// Behind the last fault.
  [[nodiscard]] auto end() const noexcept { return list_.end(); }

  /// One line for each fault, ended by a newline; a last line counts dropped ones.
  [[nodiscard]] std::string to_string() const;

 private:
  std::vector<Diagnostic> list_;
  std::size_t dropped_ = 0;
};

/// As to_string().
std::ostream& operator<<(std::ostream& out, const Diagnostic& diagnostic);
/// As to_string().
std::ostream& operator<<(std::ostream& out, const Diagnostics& diagnostics);

}  // namespace remora::config
