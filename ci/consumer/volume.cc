// Of remora::volume: the records of a cluster in a file.
#include <cstdio>
#include <string>

#include <remora/volume/cluster.h>
#include <remora/volume/placement.h>

int main() {
  const auto uri = remora::volume::parse_uri("remora+file:///tmp/remora-consumer-none.json/disk");
  if (!uri) return 1;
  const auto cluster = remora::volume::Cluster::open(*uri);
  if (!cluster) return 1;
  const auto servers = cluster->servers();  // the file does not exist
  if (!servers || !servers->empty()) return 1;
  const auto placed = remora::volume::place(*servers, {.groups = 1, .group_bytes = 1U << 20U});
  if (placed.fits()) return 1;
  std::printf("%s: %s\n", uri->text().c_str(), placed.missing().c_str());
  return 0;
}
