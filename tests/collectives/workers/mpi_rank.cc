// mpi_rank <what> [init method]: one rank under mpirun, for mpi_test. What a rank has seen goes to
// its output: "rank 2, late: kTimeout: ..." and so on.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <numeric>
#include <string>

#include "dtrun/dtrun.h"
#include "mpi/mpi_process.h"
#include "support/conformance_suite.h"

namespace dtrun::collectives {
namespace {

using base::Error;
using conformance::Part;
using std::chrono::milliseconds;

const ProcessGroup* the_world = nullptr;  // gtest's bodies take no argument

std::vector<std::vector<int>> all_of(const ProcessGroup& group) {
  std::vector<int> ranks(static_cast<std::size_t>(group.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return {ranks};
}

void run(Part part) {
  conformance::Subject subject;
  subject.name = "mpi";
  subject.run = [](int, const test::RankBody& body) {
    body(the_world->split(all_of(*the_world), "case"));
  };
  subject.worlds = {the_world->size()};
  subject.breadth = conformance::Breadth::small;
  run_part(subject, part);
}

TEST(MpiConformance, ReductionsAreThoseOfTheReference) {
  run(Part::reductions);
}
TEST(MpiConformance, PiecesComeWhereTheyBelong) {
  run(Part::pieces);
}
TEST(MpiConformance, MessagesComeWhole) {
  run(Part::messages);
}
TEST(MpiConformance, GroupsWorkSideBySide) {
  run(Part::groups);
}

tensors::LocalTensor ones(std::int64_t count) {
  return tensors::ones({count});
}

std::string in_one_line(const Error& error) {
  std::string text = error.what();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

using Scene = std::function<void(const ProcessGroup& group)>;

/// Plays on a group of its own, which it may ruin.
void play(const std::string& name, milliseconds timeout, const Scene& scene) {
  const ProcessGroup group =
      the_world->split(all_of(*the_world), name, SplitOptions{.timeout = timeout});
  std::string seen = "nothing";
  try {
    scene(group);
  } catch (const Error& error) {
    seen = in_one_line(error);
  }
  std::printf("rank %d, %s: %s\n", group.rank(), name.c_str(), seen.c_str());
}

// Rank 1 is the odd one.
void play_failures() {
  constexpr milliseconds kLong(30000);
  play("disagree", kLong,
       [](const ProcessGroup& group) { group.all_reduce(ones(group.rank() == 1 ? 5 : 4)); });
  play("reject", kLong, [](const ProcessGroup& group) {
    std::vector<tensors::LocalTensor> outputs(static_cast<std::size_t>(group.rank() == 1 ? 1 : 3),
                                              ones(1));
    group.all_gather(outputs, ones(1));
  });
  play("late", milliseconds(600), [](const ProcessGroup& group) {
    if (group.rank() != 1) return void(group.all_reduce(ones(3)));
    group.recv(ones(1), -1, 3, {.timeout = kLong});
  });
  play("leave", kLong, [](const ProcessGroup& group) {
    if (group.rank() == 1) return group.shutdown();
    group.barrier();
  });
  play("left by all", kLong, [](const ProcessGroup& group) {
    if (group.rank() == 1) group.recv(ones(1), -1);
    group.shutdown();
  });
  play("large tag", kLong, [](const ProcessGroup& group) {
    group.send(ones(1), (group.rank() + 1) % group.size(), 0xfffffffe);
  });
}

void play_own_timeout_abort_and_shrink() {
  constexpr milliseconds kLong(30000);
  play("own timeout", kLong, [](const ProcessGroup& group) {
    group.set_timeout(milliseconds(600));
    if (group.rank() != 1) return void(group.all_reduce(ones(3)));
    group.recv(ones(1), -1, 3, {.timeout = kLong});
  });
  play("abort", kLong, [](const ProcessGroup& group) {
    const tensors::LocalTensor word = ones(1);
    if (group.rank() != 1) group.send(word, 1);
    for (const int peer : {0, 2})
      if (group.rank() == 1) group.recv(word, peer);
    if (group.rank() == 1) group.abort("the loss is nan");
    group.all_reduce(ones(3));
  });
  play("shrink", kLong, [](const ProcessGroup& group) {
    if (group.rank() == 1) {
      group.all_reduce(ones(3));
      return group.abort("try again");
    }
    try {
      group.all_reduce(ones(3));
      group.barrier();
    } catch (const Error& error) {
      std::printf("rank %d, shrink: %s\n", group.rank(), in_one_line(error).c_str());
    }
    const ProcessGroup rest = group.shrink({.excluded_ranks = {1}});
    const tensors::LocalTensor sum = ones(3);
    rest.all_reduce(sum);
    std::printf("rank %d, shrunk: %s of %d: %g\n", group.rank(), rest.backend_name().c_str(),
                rest.size(), sum.to_vector()[2]);
  });
}

void play_words() {
  play("words", milliseconds(1000), [](const ProcessGroup&) {
    mpi::MpiProcess::get().require(MPI_ERR_TRUNCATE, "MPI_Nothing");
  });
}

void kill_one() {
  const tensors::LocalTensor tensor = ones(10);
  the_world->all_reduce(tensor);
  std::printf("rank %d is in\n", the_world->rank());
  std::fflush(stdout);
  the_world->barrier();
  if (the_world->rank() == 1) ::raise(SIGKILL);
  for (;;) the_world->all_reduce(tensor);
}

// Of a world over backend cpu. Not all ranks would start MPI for the pair: first all must.
void subgroups_over_mpi() {
  const auto pair_up = [](const ProcessGroup& group) {
    const ProcessGroup pair = group.split({{2, 0}}, "pair", {.backend = "mpi"});
    if (!pair.valid()) return;
    const tensors::LocalTensor tensor = ones(3);
    pair.all_reduce(tensor);
    std::printf("rank %d, pair: %s: %g\n", pair.rank(), pair.backend_name().c_str(),
                tensor.to_vector()[2]);
  };
  play("too few", milliseconds(30000), pair_up);
  const ProcessGroup all = the_world->split(all_of(*the_world), "all", {.backend = "mpi"});
  play("enough", milliseconds(30000), pair_up);
}

int use(const std::string& what, runtime::InitOptions options) {
  const mpi::MpiApi* api =
      what.rfind("begun", 0) == 0 || what == "over" ? &mpi::open_mpi() : nullptr;
  int threads = 0;
  if (api != nullptr)
    api->init_thread(nullptr, nullptr, what == "begun" ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE,
                     &threads);
  if (what == "over") api->finalize();
  options.backend = what == "subgroup" ? "cpu" : "mpi";
  try {
    const runtime::Worker worker = runtime::init(std::move(options));
    the_world = &worker.world();
    if (what == "conformance") return RUN_ALL_TESTS();
    if (what == "failures") play_failures();
    if (what == "ends") play_own_timeout_abort_and_shrink();
    if (what == "words") play_words();
    if (what == "kill") kill_one();
    if (what == "subgroup") subgroups_over_mpi();
    std::printf("rank %d was in %s\n", worker.rank(), the_world->to_string().c_str());
  } catch (const Error& error) {
    std::printf("refused: %s\n", in_one_line(error).c_str());
  }
  if (api != nullptr && what != "over") api->finalize();
  return 0;
}

}  // namespace
}  // namespace dtrun::collectives

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  dtrun::runtime::InitOptions options;
  if (argc > 2) options.init_method = argv[2];
  return dtrun::collectives::use(argv[1], std::move(options));
}
