// Makes each kind of mistake on a line of its own and prints "KIND|LINE|what the error says of the
// place", for tests. It counts the walks of the stack that dtrun asks for.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unwind.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "dtrun/base/user_frame.h"
#include "dtrun/dtrun.h"

using namespace dtrun;

namespace {

std::atomic<int> walks = 0;

}  // namespace

/// Of this program, so that dtrun's calls come here.
extern "C" _Unwind_Reason_Code _Unwind_Backtrace(_Unwind_Trace_Fn visit, void* data) {
  ++walks;
  using Walk = _Unwind_Reason_Code (*)(_Unwind_Trace_Fn, void*);
  static const Walk real = reinterpret_cast<Walk>(::dlsym(RTLD_NEXT, "_Unwind_Backtrace"));
  return real(visit, data);
}

namespace {

template <typename Call>
void mistake(const char* kind, int line, const Call& call) {
  try {
    call();
    print("{}|{}|no error", kind, line);
  } catch (const Error& error) {
    print("{}|{}|{}", kind, line, base::place_in(error));
  }
}
/// `call` stands on the line that the error must name.
#define MISTAKE(kind, ...) mistake(kind, __LINE__, [&] { __VA_ARGS__; })

[[gnu::noinline]] Tensor added(const Tensor& a, const Tensor& b) {
  Tensor sum = a + b;
  return sum.relu();
}
constexpr int kLineOfAdded = __LINE__ - 3;

struct Net : nn::Module {
  nn::Linear first = register_module("first", nn::Linear(4, 2));
  Tensor forward(const Tensor& x) { return first(x); }
};
constexpr int kLineOfForward = __LINE__ - 2;

}  // namespace

/// A program may put its functions there: its file tells that it is not dtrun's.
namespace dtrun {
[[gnu::noinline]] Tensor distance(const Tensor& a, const Tensor& b) {
  Tensor difference = a - b;
  return difference.abs();
}
constexpr int kLineInNamespace = __LINE__ - 3;
}  // namespace dtrun

namespace {

void make_local_mistakes() {
  const Tensor a = ones({2, 3});
  const Tensor b = ones({4, 5});
  mistake("function", kLineOfAdded, [&] { added(a, b); });
  mistake("namespace", kLineInNamespace, [&] { distance(a, b); });
  MISTAKE("operator", a + b);
  MISTAKE("matmul", matmul(a, b));
  MISTAKE("cat", cat({a, b}));
  MISTAKE("method", a.sum({7}));
  MISTAKE("reshape", a.reshape({7}));
  MISTAKE("in place", a.add_(b));
  MISTAKE("item", a.item());
  MISTAKE("einsum", einsum("ij,jk->iz", {a, b}));
  MISTAKE("undefined", Tensor() + a);
  MISTAKE("module", nn::Linear(4, 2)(a));
  MISTAKE("backward", a.sum().backward());
  mistake("forward", kLineOfForward, [&] { Net().forward(a); });
  const int line_of_lambda = __LINE__ + 1;
  const std::function<Tensor(const Tensor&)> doubled = [&](const Tensor& x) { return x + b; };
  mistake("lambda", line_of_lambda, [&] { doubled(a); });
  std::thread([&] { MISTAKE("thread", a + b); }).join();
  Tensor x = ones({2}).requires_grad_();
  const Tensor y = (x * x).sum();
  y.backward();
  MISTAKE("second backward", y.backward());
}

void make_mistakes_of_ranks() {
  simulate(2, [] {
    dist::init_process_group();
    const DeviceMesh mesh = dist::init_device_mesh("cpu", {2});
    const Tensor x = distribute_tensor(ones({4, 4}), mesh, {Shard(0)});
    const Tensor z = distribute_tensor(ones({3, 4}), mesh, {Shard(0)});
    if (dist::get_rank() == 0) MISTAKE("distributed", x + z);
    const StrictScope strict;
    if (dist::get_rank() == 0) MISTAKE("strict", matmul(x, x));
    dist::destroy_process_group();
  });
  simulate(2, [] {
    dist::init_process_group();
    const DeviceMesh mesh = dist::init_device_mesh("cpu", {2});
    const Tensor x = distribute_tensor(ones({4, 4}), mesh, {Shard(0)});
    const Tensor p = distribute_tensor(ones({8, 8}), mesh, {Shard(1)});
    if (dist::get_rank() == 0) MISTAKE("rank 0 of two", matmul(x, x));
    if (dist::get_rank() == 1) MISTAKE("rank 1 of two", softmax(p, 1));
    dist::destroy_process_group();
  });
}

void make_mistake_of_a_simulation() {
  const int line = __LINE__ + 2;
  try {
    simulate(2, [] { matmul(ones({2, 3}), ones({2, 3})); });
  } catch (const Error& error) {
    const std::string words = "that rank was at ";
    print("simulated|{}|{}", line, error.why().substr(error.why().find(words) + words.size()));
  }
}

/// The other rank has failed: this one says where it waited.
void wait_for_one_that_fails() {
  try {
    simulate(2, [] {
      dist::init_process_group();
      const DeviceMesh mesh = dist::init_device_mesh("cpu", {2});
      const Tensor x = distribute_tensor(ones({4, 4}), mesh, {Shard(0)});
      if (dist::get_rank() == 1) throw std::runtime_error("the data is bad");
      const int line = __LINE__ + 2;
      try {
        matmul(x, x);
      } catch (const Error& error) {
        const std::string words = "this rank was in matmul at ";
        const std::size_t at = error.why().find(words);
        print("waiting|{}|{}", line,
              at == std::string::npos ? error.what() : error.why().substr(at + words.size()));
      }
    });
  } catch (const std::exception&) {
  }
}

/// Children of a process whose other thread is in the middle of errors.
void fork_among_errors() {
  const Tensor a = ones({2, 3}), b = ones({4, 5});
  const auto place = [&] {
    try {
      a + b;
    } catch (const Error& error) {
      return base::place_in(error);
    }
    return std::string();
  };
  std::atomic<bool> ends = false;
  std::thread other([&] {
    while (!ends) place();
  });
  int right = 0;
  for (int child = 0; child < 50; ++child) {
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(place().find("user_lines.cc:") == 0 ? 0 : 1);
    int status = 1;
    ::waitpid(pid, &status, 0);
    right += status == 0 ? 1 : 0;
  }
  ends = true;
  other.join();
  print("{} children", right);
}

void compute_well() {
  const Tensor x = ones({4, 4}).requires_grad_();
  nn::Linear(4, 2)(matmul(x, x) + x).sum().backward();
  simulate(2, [] {
    dist::init_process_group();
    const DeviceMesh mesh = dist::init_device_mesh("cpu", {2});
    const Tensor a = distribute_tensor(ones({4, 4}), mesh, {Shard(0)});
    matmul(a, a).sum().full_tensor().item();
    dist::destroy_process_group();
  });
  print("{} walks", walks.load());
}

void time_mistakes() {
  const Tensor a = ones({2, 3});
  for (int round = 0; round < 4; ++round) {
    const int times = round == 0 ? 1 : 1000;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < times; ++i) {
      try {
        a + ones({4, 5});
      } catch (const Error&) {
      }
    }
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    print("{} errors: {:.1f} us each", times, took.count() / times);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "mistakes";
  if (what == "well") compute_well();
  if (what == "time") time_mistakes();
  if (what == "fork") fork_among_errors();
  if (what != "mistakes") return 0;
  make_local_mistakes();
  make_mistakes_of_ranks();
  make_mistake_of_a_simulation();
  wait_for_one_that_fails();
}
