// checkpoint_bench: what a checkpoint takes, beside the disk's own rate, PyTorch's
// torch.distributed.checkpoint and the safetensors writer, in one run.
//
//     checkpoint_bench --folder DIR [--mebibytes 1024] [--rounds 3] [--python PYTHON]
//
// Every writer syncs what it has written. Rates are of the median round; `of the disk` compares
// with a plain write and fsync of as many bytes in the same round.
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "dtrun/base/error.h"
#include "dtrun/base/unique_fd.h"
#include "dtrun/dtensor/checkpoint/async_saver.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/rendezvous/hash_store.h"
#include "support/command.h"

using namespace dtrun;
using namespace dtrun::dtensor;
namespace fs = std::filesystem;

namespace {

struct Options {
  std::string folder;
  std::int64_t mebibytes = 1024;
  int rounds = 3;
  std::string python;
};

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The disk's sequential rate.
void write_plainly(const std::string& path, const std::string& block, std::int64_t blocks) {
  const base::UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd) throw base::system_error("create " + path);
  for (std::int64_t i = 0; i < blocks; ++i) {
    for (std::size_t done = 0; done < block.size();) {
      const ssize_t written = ::write(fd.get(), block.data() + done, block.size() - done);
      if (written < 0) throw base::system_error("write to " + path);
      done += static_cast<std::size_t>(written);
    }
  }
  if (::fsync(fd.get()) != 0) throw base::system_error("sync " + path);
}

/// What is measured, by name; seconds of each round.
using Samples = std::map<std::string, std::vector<double>>;

/// Lines "NAME SECONDS" of the peers.
void add_peers(const Options& options, Samples& samples) {
  if (options.python.empty()) return;
  testing_support::CommandOptions how;
  how.limit = std::chrono::seconds(600);
  const auto result = testing_support::run_command(
      {options.python, CHECKPOINT_PEERS, options.folder, std::to_string(options.mebibytes)}, how);
  if (result.exit_code != 0)
    throw base::Error(base::ErrorCode::kSystem, "the peers have failed", result.describe());
  for (std::size_t at = 0; at < result.out.size();) {
    const std::size_t end = std::min(result.out.find('\n', at), result.out.size());
    const std::string line = result.out.substr(at, end - at);
    const std::size_t space = line.rfind(' ');
    if (space != std::string::npos)
      samples[line.substr(0, space)].push_back(std::stod(line.substr(space + 1)));
    at = end + 1;
  }
}

void measure_round(const Options& options, const dcp::State& state, Samples& samples) {
  const std::string plain = options.folder + "/plain", saved = options.folder + "/saved",
                    later = options.folder + "/later";
  const std::string block(1 << 20, 'x');
  samples["disk write"].push_back(
      seconds_of([&] { write_plainly(plain, block, options.mebibytes); }));
  fs::remove(plain);
  samples["dtrun save"].push_back(seconds_of([&] { dcp::save(saved, state); }));
  samples["dtrun load"].push_back(seconds_of([&] { dcp::load(saved, state); }));
  fs::remove_all(saved);
  dcp::AsyncSaver saver(rendezvous::make_hash_store(), 0, 1);
  samples["dtrun async stall"].push_back(seconds_of([&] { saver.save(later, state); }));
  saver.wait();
  fs::remove_all(later);
  add_peers(options, samples);
}

void report(const Options& options, const Samples& samples) {
  const auto median = [](std::vector<double> all) {
    std::ranges::sort(all);
    return all[all.size() / 2];
  };
  const double disk = median(samples.at("disk write"));
  fmt::print("{:24} {:>8} {:>8} {:>12}\n", "", "seconds", "MB/s", "of the disk");
  for (const auto& [name, all] : samples) {
    const double seconds = median(all);
    fmt::print("{:24} {:8.3f} {:8.0f} {:12.2f}\n", name, seconds,
               static_cast<double>(options.mebibytes) * 1.048576 / seconds, disk / seconds);
  }
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("what a checkpoint takes, beside the disk, PyTorch and safetensors");
  app.add_option("--folder", options.folder, "on the disk that is measured")->required();
  app.add_option("--mebibytes", options.mebibytes, "of the state")->check(CLI::PositiveNumber);
  app.add_option("--rounds", options.rounds, "that are measured")->check(CLI::PositiveNumber);
  app.add_option("--python", options.python, "one that has torch and safetensors");
  CLI11_PARSE(app, argc, argv);
  nn::StateDict tensors;
  for (std::int64_t left = options.mebibytes, i = 0; left > 0; left -= 32, ++i) {
    const std::int64_t rows = std::min<std::int64_t>(left, 32);
    tensors.insert("layer." + std::to_string(i), randn({rows, 1 << 18}, RandomKey{1, 2}));
  }
  const dcp::State state{{"model", tensors}};
  fs::create_directories(options.folder);
  Samples samples;
  for (int round = 0; round < options.rounds; ++round) measure_round(options, state, samples);
  report(options, samples);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "checkpoint_bench: {}\n", error.what());
    return 1;
  }
}
