// remora::metrics alone: counts something and shows it as Prometheus would scrape it.
#include <iostream>

#include <remora/metrics/registry.h>

int main() {
  const auto registry = remora::metrics::Registry::create().value();
  const auto sent = registry->counter("consumer_sent_total", "Things sent.").value();
  registry->recorder().add(sent, 3);
  std::cout << "metrics: " << registry->value(sent) << '\n' << registry->text();
  return registry->value(sent) == 3 ? 0 : 1;
}
