/// A key-value cache that processes share (kv_cache.h).
///
///   kv_cache remora://localhost/cache put KEY VALUE
///   kv_cache remora://localhost/cache get KEY...
///   kv_cache remora://localhost/cache work NAME ROUNDS
///
/// `work`: ROUNDS times one put and one multi-get of the 100 keys that all workers share. A worker
/// checks that each value is whole, is that of its key, and is never older than a value it saw.

#include "kv_cache.h"

#include <cstdlib>
#include <iostream>
#include <map>
#include <sstream>
#include <utility>

namespace {

std::string text_of(std::span<const std::byte> value) {
  return {reinterpret_cast<const char*>(value.data()), value.size()};
}

int work(KvCache& cache, const std::string& name, int rounds) {
  std::vector<std::string> keys(100);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = "key" + std::to_string(i);
  std::map<std::pair<std::string, std::string>, int> newest;  // of a key and a writer
  int found = 0;
  int wrong = 0;
  for (int round = 1; round <= rounds; ++round) {
    const std::string& key = keys[static_cast<std::size_t>(round) % keys.size()];
    std::string value;
    value.append(key).append(" ").append(name).append(" ").append(std::to_string(round));
    value.append(" ").resize(1024, '.');
    cache.put(key, std::as_bytes(std::span{value}));
    cache.get(keys, [&](std::size_t index, std::span<const std::byte> bytes) {
      std::istringstream words{text_of(bytes)};
      std::string of;
      std::string writer;
      int seen = 0;
      words >> of >> writer >> seen;
      int& last = newest[{of, writer}];
      if (bytes.size() != 1024 || of != keys[index] || seen < last) ++wrong;
      last = seen;
      ++found;
    });
  }
  std::cout << rounds << " puts, " << found << " values found, " << wrong << " wrong\n";
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<std::string> words{argv + 1, argv + argc};
  if (words.size() < 3 || (words[1] != "get" && words.size() != 4))
    return std::cerr << "usage: kv_cache URI put KEY VALUE | get KEY... | work NAME ROUNDS\n", 2;
  auto engine = remora::Engine::open({}).value();
  KvCache cache{engine.open_region(words[0], remora::Rights::kAll).value()};
  if (words[1] == "work") return work(cache, words[2], std::atoi(words[3].c_str()));
  if (words[1] == "put") return cache.put(words[2], std::as_bytes(std::span{words[3]})), 0;
  const std::span<const std::string> keys = std::span{words}.subspan(2);
  cache.get(keys, [&](std::size_t index, std::span<const std::byte> value) {
    std::cout << keys[index] << ": " << text_of(value) << '\n';
  });
  return 0;
} catch (const std::exception& error) {
  return std::cerr << error.what() << '\n', 1;
}
