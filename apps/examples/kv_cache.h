#pragma once

/// A key-value cache in a region, for any number of processes at once; the server runs no code for
/// it. One object serves one thread. Calls throw remora::Exception.
///
///   block 0           word 0 counts the value blocks handed out; the other words name free ones
///   the index         buckets of 8 words; a word is 0, or tag, version and block of a value
///   the value blocks  sealed (sealed_block.h): lengths, key, value
///
/// put() writes a block that no word names, and exchanges the word of the key by compare-and-swap.
/// The block that the word named before is the next that this object writes. So each block has one
/// writer at a time without a lock; a process that is killed takes one block with it. get() may
/// read a block that is being written again: its seal has another version than the word, or is
/// broken, and get() looks the key up again. A value that meets a full bucket replaces another: a
/// cache.
///
/// put() takes for granted that a plain read gives a word of 8 aligned bytes whole, as processors
/// and NICs do. With a torn word a key may get a second word, and get() an old value.

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <remora/remora.h>

class KvCache {
 public:
  /// `region`: with all rights; new, or used by this class alone before.
  explicit KvCache(remora::Region region)
      : region_{std::move(region)}, block_(region_.block_bytes()) {
    // Seven words for eight value blocks: the eighth is for what writers hold.
    const std::uint64_t index_blocks = region_.block_count() * 7 / (block_.size() + 8);
    if (index_blocks == 0) throw std::invalid_argument{"the region has too few blocks"};
    buckets_ = index_blocks * block_.size() / sizeof(Bucket);
    first_value_ = 1 + index_blocks;
  }
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;
  ~KvCache() {  // the block of the next put() is for another process
    for (std::uint64_t at = 8; spare_ != 0 && at < block_.size(); at += 8)
      if (const auto was = region_.compare_swap(ByteOffset{at}, 0, spare_); !was || *was == 0)
        return;
  }

  void put(std::string_view key, std::span<const std::byte> value) {
    if (key.size() + value.size() > block_.size() - kHead) throw std::length_error{"a long value"};
    // Where a call throws, it may be unknown which block the word names: none is written again.
    const std::uint64_t mine = spare_ != 0 ? std::exchange(spare_, 0) : new_block();
    const std::uint64_t version = version_of(mine) % 0xffff + 1;
    const Lengths lengths{key.size(), value.size()};
    std::memcpy(&block_[remora::kSealBytes], &lengths, sizeof lengths);
    std::byte* const head = block_.data() + kHead;
    const auto name = std::as_bytes(std::span{key});
    std::copy(value.begin(), value.end(), std::copy(name.begin(), name.end(), head));
    write_consistent(region_, block_of(mine), block_, version).value();
    const std::uint64_t hash = hash_of(key);
    const std::uint64_t word = tag_of(hash) << 48U | version << 32U | block_of(mine).index;
    for (Bucket bucket{};;) {
      region_.read(bucket_at(hash), std::as_writable_bytes(std::span{bucket})).value();
      const std::size_t way = way_for(bucket, hash);
      const ByteOffset at{bucket_at(hash).bytes + way * 8};
      if (region_.compare_swap(at, bucket[way], word).value() != bucket[way]) continue;
      spare_ = bucket[way];
      return;
    }
  }

  /// Calls `found(index, value)` once for each key that is there: two calls with many pairs for all
  /// keys, and two more for those whose values are replaced meanwhile.
  template <typename Found>
  void get(std::span<const std::string> keys, const Found& found) {
    wanted_.clear();
    for (std::size_t i = 0; i < keys.size(); ++i) wanted_.push_back({i, hash_of(keys[i]), 0});
    for (int tries = 0; tries < 100 && !wanted_.empty(); ++tries) {
      read_words();
      read_values();
      std::size_t again = 0;
      for (std::size_t i = 0; i < wanted_.size(); ++i) {
        const std::span<const std::byte> block{&values_[i * block_.size()], block_.size()};
        const auto version = check_seal(block, block_of(wanted_[i].word));
        if (!version || *version != version_of(wanted_[i].word)) {
          wanted_[again++] = wanted_[i];
        } else if (const auto value = value_in(block, keys[wanted_[i].key])) {
          found(wanted_[i].key, *value);
        }
      }
      wanted_.resize(again);
    }
  }

 private:
  using ByteOffset = remora::ByteOffset;
  using Bucket = std::array<std::uint64_t, 8>;
  using Lengths = std::array<std::uint64_t, 2>;  ///< of key and value
  struct Wanted {
    std::size_t key;
    std::uint64_t hash;
    std::uint64_t word;
  };
  static constexpr std::size_t kHead = remora::kSealBytes + sizeof(Lengths);

  static std::uint64_t hash_of(std::string_view key) {  // FNV-1a, mixed: its upper bits are the tag
    std::uint64_t hash = 0xcbf29ce484222325U;
    for (const char byte : key) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3U;
    return (hash ^ hash >> 32U) * 0x9e3779b97f4a7c15U;
  }
  static std::uint64_t tag_of(std::uint64_t word_or_hash) { return word_or_hash >> 48U; }
  static std::uint64_t version_of(std::uint64_t word) { return word >> 32U & 0xffffU; }
  static remora::Block block_of(std::uint64_t word) { return {word & 0xffffffffU}; }
  ByteOffset bucket_at(std::uint64_t hash) const {
    return {block_.size() + (hash >> 8U) % buckets_ * sizeof(Bucket)};
  }
  /// The key's own word, else an empty one, else the one that the key always takes. A word never
  /// becomes empty again, so a key has one word, whichever processes put it at once.
  static std::size_t way_for(const Bucket& bucket, std::uint64_t hash) {
    for (std::size_t way = 0; way < bucket.size(); ++way)
      if (bucket[way] != 0 && tag_of(bucket[way]) == tag_of(hash)) return way;
    const auto empty = std::find(bucket.begin(), bucket.end(), std::uint64_t{0});
    if (empty == bucket.end()) return hash % bucket.size();
    return static_cast<std::size_t>(empty - bucket.begin());
  }
  /// A block that another process has given back, or one that no process has had.
  std::uint64_t new_block() {
    std::vector<std::uint64_t> words(block_.size() / 8);
    region_.read(ByteOffset{0}, std::as_writable_bytes(std::span{words})).value();
    for (std::size_t i = 1; i < words.size(); ++i)
      if (words[i] != 0 && region_.compare_swap(ByteOffset{i * 8}, words[i], 0).value() == words[i])
        return words[i];
    const std::uint64_t block = first_value_ + region_.fetch_add(ByteOffset{0}, 1).value();
    if (block >= region_.block_count()) throw std::runtime_error{"no block is left for a writer"};
    return block;
  }
  /// The word of each wanted key; forgets the keys that have none.
  void read_words() {
    found_.resize(wanted_.size());
    pairs_.clear();
    for (std::size_t i = 0; i < wanted_.size(); ++i)
      pairs_.push_back({bucket_at(wanted_[i].hash), std::as_writable_bytes(std::span{found_[i]})});
    region_.read_many(pairs_).value();
    for (std::size_t i = 0; i < wanted_.size(); ++i)
      wanted_[i].word = found_[i][way_for(found_[i], wanted_[i].hash)];
    std::erase_if(wanted_, [](const Wanted& wanted) {
      return wanted.word == 0 || tag_of(wanted.word) != tag_of(wanted.hash);
    });
  }
  void read_values() {
    values_.resize(std::max(values_.size(), wanted_.size() * block_.size()));
    pairs_.clear();
    for (std::size_t i = 0; i < wanted_.size(); ++i) {
      // A word that was read while it was exchanged may name no block; the seal reveals it.
      const auto block = std::min(block_of(wanted_[i].word).index, region_.block_count() - 1);
      pairs_.push_back({ByteOffset{block * block_.size()},
                        std::span{&values_[i * block_.size()], block_.size()}});
    }
    region_.read_many(pairs_).value();
  }
  /// The value in a whole block; nothing where the block is another key's with the same tag.
  static std::optional<std::span<const std::byte>> value_in(std::span<const std::byte> block,
                                                            std::string_view key) {
    Lengths lengths{};
    std::memcpy(&lengths, &block[remora::kSealBytes], sizeof lengths);
    const auto rest = block.subspan(kHead);
    if (lengths[0] != key.size() || key.size() > rest.size()) return {};
    if (lengths[1] > rest.size() - key.size()) return {};
    if (std::memcmp(rest.data(), key.data(), key.size()) != 0) return {};
    return rest.subspan(key.size(), lengths[1]);
  }

  remora::Region region_;
  std::vector<std::byte> block_;  ///< as it is written
  std::uint64_t buckets_ = 0;
  std::uint64_t first_value_ = 0;
  std::uint64_t spare_ = 0;  ///< the block that put() writes next, with its version; 0: none
  std::vector<Wanted> wanted_;
  std::vector<Bucket> found_;
  std::vector<remora::ReadPair> pairs_;
  std::vector<std::byte> values_;
};
