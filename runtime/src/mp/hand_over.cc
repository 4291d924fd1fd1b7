#include "hand_over.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "dtrun/base/check.h"
#include "dtrun/runtime/mp_arguments.h"

namespace dtrun::mp {
namespace {

constexpr std::uint64_t kMagic = 0x7265764f646e6148;  // "HandOver"
// An exception's text may be long; a child that has gone astray may name any length.
constexpr std::size_t kMostOutcomeBytes = 16 << 20;
constexpr auto kLastErrorCode = static_cast<std::int32_t>(base::ErrorCode::kAborted);

struct Head {
  std::uint64_t magic = kMagic;
  std::uint64_t bytes = 0;  // of the order, then of the exception, that follow
  std::int64_t time_ns = 0;
  Outcome::State state = Outcome::State::kNotBegun;
  std::int32_t error_code = -1;
};

void write_at(int fd, std::string_view bytes, std::size_t offset) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw base::system_error("hand arguments over to another process");
    bytes.remove_prefix(static_cast<std::size_t>(n));
    offset += static_cast<std::size_t>(n);
  }
}

// What is missing because the memory is shorter is left out.
std::string read_at(int fd, std::size_t bytes, std::size_t offset) {
  std::string result(bytes, '\0');
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t n =
        ::pread(fd, result.data() + done, bytes - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw base::system_error("read what another process handed over");
    if (n == 0) {
      result.resize(done);
      break;
    }
    done += static_cast<std::size_t>(n);
  }
  return result;
}

void write_head(int fd, const Head& head) {
  write_at(fd, {reinterpret_cast<const char*>(&head), sizeof head}, 0);
}

// Where a program closes descriptors that are none of its own, another file may have taken the
// number; and a child can write over the memory, or cut it off.
std::optional<Head> read_head(int fd) {
  Head head;
  const ssize_t n = ::pread(fd, &head, sizeof head, 0);
  if (n != sizeof head || head.magic != kMagic) return std::nullopt;
  return head;
}

// nullopt: it is not what a child writes.
std::optional<std::string> take_text(std::string_view& rest) {
  std::size_t size = 0;
  if (rest.size() < sizeof size) return std::nullopt;
  std::memcpy(&size, rest.data(), sizeof size);
  rest.remove_prefix(sizeof size);
  const std::string text(rest.substr(0, size));
  rest.remove_prefix(text.size());
  return text;
}

base::UniqueFd make_memory() {
  base::UniqueFd fd(::memfd_create("dtrun-mp", MFD_CLOEXEC));
  if (!fd)
    throw base::system_error("make memory to hand arguments over (memfd_create)",
                             "raise the limit of open files (ulimit -n)");
  // A program may have closed its standard streams; a child's are not ours to take.
  if (fd.get() <= STDERR_FILENO)
    fd = base::UniqueFd(::fcntl(fd.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  return fd;
}

}  // namespace

base::UniqueFd make_hand_over(const Order& order) {
  std::string body;
  wire::put(body, order.kind);
  wire::put(body, order.function);
  wire::put(body, order.process_name);
  wire::put(body, order.program_name);
  wire::put(body, order.start_method);
  wire::put(body, order.daemon);
  wire::put(body, order.print_exception);
  wire::put(body, order.control_fd);
  wire::put(body, order.environment);
  wire::put(body, order.arguments);
  base::UniqueFd fd = make_memory();
  Head head;
  head.bytes = body.size();
  write_at(fd.get(), body, sizeof head);
  write_head(fd.get(), head);
  return fd;
}

base::UniqueFd make_hand_over() {
  base::UniqueFd fd = make_memory();
  write_head(fd.get(), Head{});
  return fd;
}

Order take_order(int fd) {
  const std::optional<Head> head = read_head(fd);
  DT_CHECK(head);
  const std::string body = read_at(fd, head->bytes, sizeof *head);
  wire::Reader reader(body);
  Order order;
  wire::get(reader, order.kind);
  wire::get(reader, order.function);
  wire::get(reader, order.process_name);
  wire::get(reader, order.program_name);
  wire::get(reader, order.start_method);
  wire::get(reader, order.daemon);
  wire::get(reader, order.print_exception);
  wire::get(reader, order.control_fd);
  wire::get(reader, order.environment);
  wire::get(reader, order.arguments);
  return order;
}

void mark_begun(int fd) {
  Head head;
  head.state = Outcome::State::kBegun;
  write_head(fd, head);
  // The arguments may be large, and are needed here only once.
  if (::ftruncate(fd, sizeof head) != 0) throw base::system_error("give memory back");
}

void write_raised(int fd, const Outcome& outcome) {
  if (!read_head(fd))
    throw base::Error(base::ErrorCode::kUsage,
                      "the parent cannot be told of the exception that follows",
                      fmt::format("descriptor {}, which is there for that, has been closed", fd),
                      "close only descriptors that the function itself has opened");
  std::string body;
  wire::put(body, outcome.type);
  wire::put(body, outcome.text);
  write_at(fd, body, sizeof(Head));
  Head head;
  head.bytes = body.size();
  head.state = Outcome::State::kRaised;
  head.time_ns = outcome.time_ns;
  if (outcome.error_code) head.error_code = static_cast<std::int32_t>(*outcome.error_code);
  write_head(fd, head);
}

Outcome read_outcome(int fd) {
  Outcome outcome;
  const std::optional<Head> head = read_head(fd);
  if (head && head->state == Outcome::State::kNotBegun) return outcome;
  // Only one that has begun can have written over it; how it ended its exit code says.
  outcome.state = Outcome::State::kBegun;
  if (!head || head->state != Outcome::State::kRaised) return outcome;
  const std::string body =
      read_at(fd, std::min<std::size_t>(head->bytes, kMostOutcomeBytes), sizeof *head);
  std::string_view rest = body;
  const std::optional<std::string> type = take_text(rest), text = take_text(rest);
  outcome.state = Outcome::State::kRaised;
  outcome.time_ns = head->time_ns;
  if (head->error_code >= 0 && head->error_code <= kLastErrorCode)
    outcome.error_code = static_cast<base::ErrorCode>(head->error_code);
  outcome.type = type.value_or("an exception");
  outcome.text = text.value_or("the process has overwritten the text of its error");
  return outcome;
}

}  // namespace dtrun::mp
