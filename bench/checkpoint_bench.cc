// checkpoint_bench: what a checkpoint takes, beside the disk's own rate, PyTorch's
// torch.distributed.checkpoint and the safetensors writer, in one run.
//
//     checkpoint_bench --folder DIR [--mebibytes 1024] [--rounds 3] [--python PYTHON]
//
// Every writer syncs what it has written. Loads are of files that the page cache has not, unless
// they are `cached`. Figures are of the median round, those of steps of the fastest. `of the disk`
// compares with the fastest of the plain ways to write and sync, or to read, as many bytes in the
// same rounds: through the page cache or directly, one file or two, or mapped. They use a block of
// 2 MiB again and again, which stays in a cache; a load fills as much memory as it reads, as does
// the last of the plain reads. `of ordinary ways` compares with those without huge pages: dd's. A
// merge reads and writes the bytes.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <string>
#include <vector>

#include "dtrun/base/error.h"
#include "dtrun/base/unique_fd.h"
#include "dtrun/dtensor/checkpoint/archive.h"
#include "dtrun/dtensor/checkpoint/async_saver.h"
#include "dtrun/dtensor/checkpoint/offline.h"
#include "dtrun/dtensor/ops/basic.h"
#include "dtrun/dtensor/ops/creation.h"
#include "dtrun/rendezvous/hash_store.h"
#include "dtrun/tensor/threads.h"
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

/// How bytes go to a disk and come back.
struct Way {
  int flags = 0;  ///< O_DIRECT, or 0
  int files = 1;  ///< each has a thread of its own
  int pages = MADV_NOHUGEPAGE;
};

/// Memory that O_DIRECT takes: it begins at a huge page.
struct Block {
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;
  const std::size_t size;
  char* const mapped = static_cast<char*>(::mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE,
                                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  char* const bytes = mapped + (kHugePage - reinterpret_cast<std::uintptr_t>(mapped) % kHugePage);
  explicit Block(int pages, std::size_t bytes_of_it = kHugePage) : size(bytes_of_it) {
    if (mapped == MAP_FAILED) throw base::system_error("map memory");
    ::madvise(bytes, size, pages);
    std::memset(bytes, 'x', size);
  }
  ~Block() { ::munmap(mapped, size + kHugePage); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
};

void in_files(const std::string& path, const Way& way,
              const std::function<void(const std::string& file)>& work) {
  std::vector<std::future<void>> threads;
  for (int i = 0; i < way.files; ++i)
    threads.push_back(std::async(std::launch::async, work, path + std::to_string(i)));
  for (std::future<void>& thread : threads) thread.get();
}

/// The disk's sequential rate: written and synced.
void write_plainly(const std::string& path, std::int64_t mebibytes, const Way& way) {
  in_files(path, way, [&](const std::string& file) {
    const Block block(way.pages);
    const base::UniqueFd fd(
        ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | way.flags, 0644));
    if (!fd) throw base::system_error("create " + file);
    for (std::int64_t left = (mebibytes << 20) / way.files; left > 0;) {
      const auto most = std::min<std::size_t>(block.size, static_cast<std::size_t>(left));
      const ssize_t written = ::write(fd.get(), block.bytes, most);
      if (written < 0) throw base::system_error("write to " + file);
      left -= written;
    }
    if (::fsync(fd.get()) != 0) throw base::system_error("sync " + file);
  });
}

/// Through all of the block, from its begin again and again.
void read_file(const std::string& file, int flags, const Block& block) {
  const base::UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | flags));
  if (!fd) throw base::system_error("open " + file);
  ssize_t count = 1;
  for (std::size_t at = 0; count > 0; at += Block::kHugePage)
    count = ::read(fd.get(), block.bytes + at % block.size, Block::kHugePage);
  if (count < 0) throw base::system_error("read " + file);
}

/// Copied out of a mapping, as the block's reads are out of the page cache.
void read_mapped(const std::string& file, const Block& block) {
  const base::UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) throw base::system_error("open " + file);
  const std::size_t size = fs::file_size(file);
  void* const mapped = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (mapped == MAP_FAILED) throw base::system_error("map " + file);
  ::madvise(mapped, size, MADV_SEQUENTIAL);
  for (std::size_t at = 0; at < size; at += block.size)
    std::memcpy(block.bytes, static_cast<char*>(mapped) + at, std::min(block.size, size - at));
  ::munmap(mapped, size);
}

void read_plainly(const std::string& path, const Way& way) {
  in_files(path, way,
           [&](const std::string& file) { read_file(file, way.flags, Block(way.pages)); });
}

/// Into the page cache.
void warm(const std::string& folder) {
  const Block block(MADV_NOHUGEPAGE);
  for (const auto& entry : fs::directory_iterator(folder)) read_file(entry.path(), 0, block);
}

/// Out of the page cache, so that the next read is one of the disk.
void evict(const std::string& path) {
  if (fs::is_directory(path)) {
    for (const auto& entry : fs::directory_iterator(path)) evict(entry.path());
    return;
  }
  const base::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) throw base::system_error("open " + path);
  const int error = ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  if (error != 0) throw base::system_error("evict " + path, error);
}

/// What is measured, by name; seconds of each round.
using Samples = std::map<std::string, std::vector<double>>;

constexpr const char* kStepsAlone = "4 steps";
constexpr const char* kStepsBeside = "4 steps, a save beside them";

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

/// Which way is the fastest here: what docs/checkpoints.md says of direct I/O and of several files.
void measure_disk(const Options& options, Samples& samples) {
  const std::pair<const char*, Way> ways[] = {
      {"", {}},
      {", direct", {.flags = O_DIRECT}},
      {", 2 files", {.files = 2}},
      {", 2 files, direct", {O_DIRECT, 2}},
      {", direct, huge pages", {O_DIRECT, 1, MADV_HUGEPAGE}}};
  const std::string plain = options.folder + "/plain";
  for (const auto& [name, way] : ways) {
    samples[std::string("disk write") + name].push_back(
        seconds_of([&] { write_plainly(plain, options.mebibytes, way); }));
    for (int i = 0; i < way.files; ++i) evict(plain + std::to_string(i));
    samples[std::string("disk read") + name].push_back(
        seconds_of([&] { read_plainly(plain, way); }));
    if (way.flags == 0 && way.files == 1) {
      evict(plain + "0");
      samples["disk read, mapped"].push_back(
          seconds_of([&] { read_mapped(plain + "0", Block(way.pages)); }));
    }
    if (way.pages == MADV_HUGEPAGE) {
      const Block memory(way.pages, static_cast<std::size_t>(options.mebibytes) << 20);
      evict(plain + "0");
      samples[std::string("disk read") + name + ", all kept"].push_back(
          seconds_of([&] { read_file(plain + "0", way.flags, memory); }));
    }
    for (int i = 0; i < way.files; ++i) fs::remove(plain + std::to_string(i));
  }
}

/// What a step waits for a save that is made in the background, copy and all: save() and
/// wait_staged(). And by how much the steps beside it are longer, which share the machine with it.
/// A step has half of the threads, as where another rank has the rest of the
/// machine.
void measure_background_save(const std::string& folder, const dcp::State& state,
                             dcp::AsyncSaver& saver, Samples& samples) {
  const int threads = tensors::num_threads();
  tensors::set_num_threads(std::max(1, threads / 2));
  const Tensor weights = randn({1024, 1024}, RandomKey{1, 3});
  const auto forward_and_backward = [&] {
    for (int i = 0; i < 20; ++i) matmul(weights, weights);
  };
  constexpr int kSteps = 4;
  const auto steps = [&] {
    for (int i = 0; i < kSteps; ++i) forward_and_backward();
  };
  samples[kStepsAlone].push_back(seconds_of(steps));
  samples[kStepsBeside].push_back(seconds_of([&] {
    double held =
        seconds_of([&] { saver.save(folder, state, {.staging = dcp::Staging::in_background}); });
    forward_and_backward();
    held += seconds_of([&] { saver.wait_staged(); });
    samples["dtrun async stall, staged beside a step"].push_back(held);
    for (int i = 1; i < kSteps; ++i) forward_and_backward();
  }));
  saver.wait();
  samples[kStepsAlone].push_back(seconds_of(steps));
  fs::remove_all(folder);
  tensors::set_num_threads(threads);
}

void measure_round(const Options& options, const dcp::State& state, dcp::AsyncSaver& saver,
                   Samples& samples) {
  const std::string saved = options.folder + "/saved", later = options.folder + "/later";
  measure_disk(options, samples);
  samples["dtrun save"].push_back(seconds_of([&] { dcp::save(saved, state); }));
  evict(saved);
  samples["dtrun load"].push_back(seconds_of([&] { dcp::load(saved, state); }));
  warm(saved);
  samples["dtrun load, cached"].push_back(seconds_of([&] { dcp::load(saved, state); }));
  evict(saved);
  samples["dtrun merge"].push_back(seconds_of([&] {
    dcp::Archive archive(saved);
    dcp::merge(archive, options.folder + "/merged");
  }));
  fs::remove(options.folder + "/merged");
  fs::remove_all(saved);
  samples["dtrun async stall"].push_back(seconds_of([&] { saver.save(later, state); }));
  saver.wait();
  fs::remove_all(later);
  measure_background_save(later, state, saver, samples);
  add_peers(options, samples);
}

void report(const Options& options, const Samples& samples) {
  const auto median = [](std::vector<double> all) {
    std::ranges::sort(all);
    return all[all.size() / 2];
  };
  const auto least = [&](const std::string& name) {
    return *std::ranges::min_element(samples.at(name));
  };
  // Seconds of the fastest plain way, and of the fastest ordinary one: without huge pages.
  const auto fastest = [&](const std::string& what, bool ordinary) {
    double fast = median(samples.at(what));
    for (const auto& [name, all] : samples)
      if (name.starts_with(what) && !(ordinary && name.find("huge pages") != std::string::npos))
        fast = std::min(fast, median(all));
    return fast;
  };
  fmt::print("{:40} {:>8} {:>8} {:>12} {:>16}\n", "", "seconds", "MB/s", "of the disk",
             "of ordinary ways");
  for (const auto& [name, all] : samples) {
    const double seconds = median(all);
    if (name == kStepsAlone || name == kStepsBeside) {  // no bytes
      fmt::print("{:40} {:8.3f}\n", name, least(name));
      continue;
    }
    if (name.find("stall") != std::string::npos) {
      fmt::print("{:40} {:8.3f} {:>8} {:11.1f}% of the save\n", name, seconds, "",
                 100 * seconds / median(samples.at("dtrun save")));
      continue;
    }
    const bool is_read = name.find("load") != std::string::npos || name.starts_with("disk read");
    const auto plain = [&](bool ordinary) {
      const double read = fastest("disk read", ordinary);
      const double written = fastest("disk write", ordinary);
      return name == "dtrun merge" ? read + written : is_read ? read : written;
    };
    fmt::print("{:40} {:8.3f} {:8.0f} {:12.2f} {:16.2f}\n", name, seconds,
               static_cast<double>(options.mebibytes) * 1.048576 / seconds, plain(false) / seconds,
               plain(true) / seconds);
  }
  // Of the least: other programs of the machine make any steps longer.
  const double stall = least(kStepsBeside) - least(kStepsAlone);
  fmt::print("{:40} {:8.3f} {:>8} {:11.1f}% of the save\n",
             "dtrun async, by which steps are longer", stall, "",
             100 * stall / median(samples.at("dtrun save")));
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
  // The first copy's memory is new; a training makes many.
  dcp::AsyncSaver saver(rendezvous::make_hash_store(), 0, 1);
  samples["dtrun first async stall"].push_back(
      seconds_of([&] { saver.save(options.folder + "/first", state); }));
  saver.wait();
  fs::remove_all(options.folder + "/first");
  for (int round = 0; round < options.rounds; ++round)
    measure_round(options, state, saver, samples);
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
