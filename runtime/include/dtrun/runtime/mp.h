// mp: torch.multiprocessing's Process and spawn: processes that run one function of this program.
//
//     void fn(int rank, std::string param1, std::string param2) { ... }
//     DTRUN_MP_FUNCTION(fn);                        // a fresh image finds it by its name
//
//     int main() {
//       mp::run_if_child();                         // a fresh image begins in main, too
//       mp::spawn(fn, mp::args("A0", "B1"), {.nprocs = 4});
//     }
//
// Start methods: "spawn" (the default: a fresh image of this program, which shares nothing),
// "fork" (a copy of this process, taken at start) and "forkserver" (a copy of a fresh image that
// has done nothing yet). docs/multiprocessing.md says what each may do and what dies when.
//
// A Process belongs to one thread; different threads may have different ones. Process-wide are the
// functions' names (a fresh image has only a name to go by), the default start method (Python's
// interface), and the list of children, which exit() must find.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <typeinfo>
#include <utility>
#include <vector>

#include "dtrun/base/call_site.h"
#include "dtrun/base/deadline.h"
#include "dtrun/base/error.h"
#include "dtrun/runtime/mp_arguments.h"

namespace dtrun::mp {

using base::Deadline;
using Site = base::CallSite;

/// Call it at the start of main(). In a process that was started to run a function it runs that
/// function and ends the process. Anywhere else it returns at once.
void run_if_child();

struct SetStartMethod {
  bool force = false;  ///< also when it was set before
};
/// May be called once, as in Python. @throws Error kInvalidArgument for an unknown name, kUsage the
/// second time
void set_start_method(const std::string& method, SetStartMethod options = {});
/// "spawn" unless set. A child has its parent's method, whichever way it was started itself.
std::string get_start_method();

/// The function call of a new process; made by Process and spawn().
struct Task {
  void (*function)() = nullptr;              ///< to be found by name; nullptr: fork only
  std::string type;                          ///< mangled, of what shall be called
  std::function<void(std::string&)> encode;  ///< appends the arguments
  std::function<void()> call;                ///< in a copy of this process
};

/// Checks at compile time that the call fits.
template <typename Callable, typename... T>
Task make_task(const Callable& callable, std::tuple<T...> values);

class ProcessContext;
struct SpawnOptions;
/// Part of spawn(). @throws Error kInvalidArgument for nprocs < 1; whatever Process::start()
/// throws, and then no process is left
ProcessContext start_processes(const std::function<Task(int rank)>& task_of_rank,
                               const SpawnOptions& options, Site site);

struct ProcessOptions {
  bool daemon = false;            ///< ended, not waited for, when this process ends
  std::string name = "";          ///< default: "Process-N"
  std::string start_method = "";  ///< default: get_start_method()
};

class Process {
 public:
  /// Starts nothing yet. @param callable a function that DTRUN_MP_FUNCTION names; for fork,
  /// anything that can be called with the arguments. @throws Error kInvalidArgument for an integer
  /// that does not fit in its parameter
  template <typename Callable, typename... T>
  requires(!std::is_same_v<std::decay_t<Callable>, Process>) explicit Process(
      Callable&& callable, Arguments<T...> arguments = {}, ProcessOptions options = {},
      Site site = Site::current())
      : Process(make_task(callable, std::move(arguments.values)), std::move(options), site) {}
  Process(Task task, ProcessOptions options, Site site);
  Process(Process&&) noexcept;
  Process& operator=(Process&&) noexcept;
  /// Does not end the child: as in Python, a child that is not joined runs until it is done or this
  /// process ends.
  ~Process();

  /// @throws Error kUsage when started before, in a daemonic process, or where the start method
  /// cannot be used (the text says why and what to use); kSystem
  void start();
  /// Whether it has ended. @throws Error kUsage before start(), and where the child ended without
  /// having come to mp::run_if_child()
  bool join(Deadline deadline = Deadline::never());
  bool is_alive();
  /// The child's exit code, or minus the signal that ended it; nullopt while it runs.
  std::optional<int> exitcode();
  /// nullopt before start().
  std::optional<pid_t> pid() const;
  const std::string& name() const;
  bool daemon() const;
  /// Sends SIGTERM. Nothing happens when the child has ended.
  void terminate();
  /// Sends SIGKILL.
  void kill();

 private:
  friend ProcessContext start_processes(const std::function<Task(int rank)>& task_of_rank,
                                        const SpawnOptions& options, Site site);
  struct State;
  std::unique_ptr<State> state_;
};

/// What spawn() throws when a process failed. code() is kPeerFailed.
class ProcessException : public base::Error {
 public:
  ProcessException(base::Error error, int rank, pid_t pid)
      : Error(std::move(error)), rank_(rank), pid_(pid) {}
  int rank() const { return rank_; }
  pid_t pid() const { return pid_; }

 private:
  int rank_;
  pid_t pid_;
};

/// An exception left the function.
class ProcessRaisedException : public ProcessException {
 public:
  ProcessRaisedException(base::Error error, int rank, pid_t pid, std::string type, std::string text)
      : ProcessException(std::move(error), rank, pid),
        type_(std::move(type)),
        text_(std::move(text)) {}
  /// "std::runtime_error"
  const std::string& type() const { return type_; }
  /// Its what().
  const std::string& text() const { return text_; }

 private:
  std::string type_;
  std::string text_;
};

/// A signal ended the process, or it called exit with another code than 0.
class ProcessExitedException : public ProcessException {
 public:
  ProcessExitedException(base::Error error, int rank, pid_t pid, int exit_code)
      : ProcessException(std::move(error), rank, pid), exit_code_(exit_code) {}
  /// As Process::exitcode().
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

struct SpawnOptions {
  int nprocs = 1;
  bool join = true;  ///< false: return as soon as all are started
  bool daemon = false;
  std::string start_method = "spawn";
  /// When one has failed: the time between SIGTERM and SIGKILL for the others.
  Deadline::Duration grace_period = std::chrono::seconds(5);
};

/// The processes of one spawn(). Destroying it ends none.
class ProcessContext {
 public:
  ProcessContext(ProcessContext&&) noexcept;
  ProcessContext& operator=(ProcessContext&&) noexcept;
  ~ProcessContext();

  /// True when all have ended well, false at the deadline. When one fails, ends the others.
  /// @throws ProcessRaisedException, ProcessExitedException for the first that failed; again from
  /// every later call
  bool join(Deadline deadline = Deadline::never());
  std::vector<pid_t> pids() const;

 private:
  friend ProcessContext start_processes(const std::function<Task(int rank)>& task_of_rank,
                                        const SpawnOptions& options, Site site);
  struct State;
  explicit ProcessContext(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Runs function(rank, arguments...) in `nprocs` processes. With join, waits for them.
/// @throws as ProcessContext::join()
template <typename Callable, typename... T>
ProcessContext spawn(Callable&& function, Arguments<T...> arguments = {}, SpawnOptions options = {},
                     Site site = Site::current()) {
  return start_processes(
      [&](int rank) {
        return make_task(function, std::tuple_cat(std::tuple<int>(rank), arguments.values));
      },
      options, site);
}

/// One function that a fresh image can run. Lives as long as the program.
class Registration {
 public:
  using Run = void (*)(void (*function)(), wire::Reader& arguments);

  template <typename Result, typename... Parameters>
  Registration(const char* name, Result (*function)(Parameters...), Site site = Site::current())
      : Registration(name, reinterpret_cast<void (*)()>(function),
                     run_encoded<Result, Parameters...>, site) {}

 private:
  Registration(const char* name, void (*function)(), Run run, Site site);
  template <typename Result, typename... Parameters>
  static void run_encoded(void (*function)(), wire::Reader& arguments);
};

#define DT_MP_JOIN_AGAIN(a, b) a##b
#define DT_MP_JOIN(a, b) DT_MP_JOIN_AGAIN(a, b)
/// At namespace scope, below the function.
#define DTRUN_MP_FUNCTION(function)                                                       \
  static const ::dtrun::mp::Registration DT_MP_JOIN(dtrun_mp_registration_, __COUNTER__)( \
      #function, function)

// Templates, only.

template <typename Result, typename... Parameters>
void Registration::run_encoded(void (*function)(), wire::Reader& arguments) {
  std::tuple<wire::Stored<Parameters>...> values;
  std::apply([&](auto&... value) { (wire::get(arguments, value), ...); }, values);
  std::apply(
      [&](auto&... value) {
        reinterpret_cast<Result (*)(Parameters...)>(function)(wire::passed<Parameters>(value)...);
      },
      values);
}

template <typename Result, typename... Parameters, typename... T>
Task function_task(Result (*function)(Parameters...), std::tuple<T...> values) {
  static_assert((wire::kSendable<wire::Stored<Parameters>> && ...),
                "mp: a parameter of this function has a type that cannot be sent to another "
                "process; these can: arithmetic types, enums, std::string, Tensor, and "
                "std::vector, std::optional, std::pair of them; with fork, a lambda can capture "
                "any other");
  static_assert((wire::kPassable<Parameters> && ...),
                "mp: a parameter of this function is a reference to non-const; what is written "
                "there would be lost: take it by value, or as a const reference");
  static_assert(sizeof...(Parameters) == sizeof...(T),
                "mp: this function takes another number of arguments than mp::args() gives it "
                "(mp::spawn passes the rank before them)");
  if constexpr (sizeof...(Parameters) == sizeof...(T)) {
    static_assert((wire::accepts<wire::Stored<Parameters>, T>() && ...),
                  "mp: an argument of mp::args() does not have the type that this function takes "
                  "(no number becomes a bool, no fraction an integer)");
    auto stored = std::make_shared<std::tuple<wire::Stored<Parameters>...>>(std::apply(
        [](auto&... value) {
          return std::tuple<wire::Stored<Parameters>...>(
              wire::converted<wire::Stored<Parameters>>(std::move(value))...);
        },
        values));
    return {reinterpret_cast<void (*)()>(function), typeid(function).name(),
            [stored](std::string& out) {
              std::apply([&](const auto&... value) { (wire::put(out, value), ...); }, *stored);
            },
            [function, stored] {
              std::apply([&](auto&... value) { function(wire::passed<Parameters>(value)...); },
                         *stored);
            }};
  }
}

template <typename Callable, typename... T>
Task make_task(const Callable& callable, std::tuple<T...> values) {
  if constexpr (std::is_function_v<Callable>) {
    return function_task(&callable, std::move(values));
  } else if constexpr (std::is_function_v<std::remove_pointer_t<Callable>>) {
    return function_task(callable, std::move(values));
  } else {
    static_assert(std::is_invocable_v<const Callable&, T...>,
                  "mp: this cannot be called with the arguments that mp::args() gives it "
                  "(mp::spawn passes the rank before them)");
    return {nullptr, typeid(Callable).name(), {}, [callable, values = std::move(values)]() mutable {
              std::apply([&](auto&... value) { callable(std::move(value)...); }, values);
            }};
  }
}

}  // namespace dtrun::mp
