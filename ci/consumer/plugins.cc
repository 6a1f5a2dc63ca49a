// Loads plugins, each with its own copy of Remora, into one scope, and runs each twice.
#include <dlfcn.h>
#include <iostream>
#include <vector>

int main(int argc, char** argv) {
  std::vector<int (*)()> plugins;
  for (int i = 1; i < argc; ++i) {
    void* const plugin = ::dlopen(argv[i], RTLD_NOW | RTLD_GLOBAL);
    if (plugin == nullptr) return std::cout << ::dlerror() << '\n', 1;
    plugins.push_back(reinterpret_cast<int (*)()>(::dlsym(plugin, "plugin_run")));
  }
  for (int round = 0; round < 2; ++round)
    for (const auto run : plugins)
      if (run() != 0) return 1;
  std::cout << plugins.size() << " plugins\n";
  return 0;
}
