#include "meeting/meeting_point.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "dtrun/base/background_call.h"
#include "dtrun/base/error.h"
#include "dtrun/base/socket.h"
#include "engines/node_list.h"
#include "meeting/elected_meeting_point.h"
#include "meeting/endpoint_facts.h"
#include "meeting/head_file.h"
#include "options/port_range.h"

namespace dtrun::launcher {
namespace {

using base::Deadline;
using base::Error;
using base::ErrorCode;

// A name that does not resolve may have been created just now, so it is tried again for some
// seconds.
constexpr auto kResolvePatience = std::chrono::seconds(5);
// For a head that may be started later than this agent; and for one on a machine on which Slurm
// seems to have started none.
constexpr auto kHeadPatience = std::chrono::seconds(30),
               kStrangerPatience = std::chrono::seconds(10);

// What a search has found, and what this agent holds for as long as it is the head.
struct Finding {
  Head head;
  std::shared_ptr<HeadFile> file;
};

Finding find_static(const Options& options) {
  Finding finding;
  Head& head = finding.head;
  head.host = options.master_addr;
  head.patience = options.rounds.join_timeout;
  if (options.node_rank == 0) {
    head.listener = options.listener_fd
                        ? base::UniqueFd(*options.listener_fd)
                        : base::listen_tcp(options.master_addr, options.master_port.value_or(0));
    head.addresses = {base::local_address(head.listener.get())};
    head.port = base::local_port(head.listener.get());
    return finding;
  }
  head.port = *options.master_port;
  head.addresses = options.master_addresses;
  if (!head.addresses.empty()) return finding;
  // Node 0 and its name may come later than this node.
  EndpointFacts facts = resolve_endpoint(options, Deadline::after(options.rounds.join_timeout));
  if (facts.addresses.empty())
    throw Error(ErrorCode::kConnection,
                fmt::format("the host '{}' of --master_addr is not known here", head.host),
                facts.resolve_error, "getent hosts NAME shows whether this machine knows a name");
  head.addresses = std::move(facts.addresses);
  return finding;
}

base::UniqueFd listen_if_free(const Options& options, const std::string& address) {
  const std::uint16_t port = options.master_port.value_or(0);
  const bool somebody_else_may_host =
      options.rounds.max_nodes > 1 && options.hosting != Hosting::kAlways;
  if (port == 0) return listen_in_range(address, options.ports);
  return somebody_else_may_host ? base::listen_tcp_unless_taken(address, port)
                                : base::listen_tcp(address, port);
}

// With or without the domain.
bool is_named_in(const std::string& node_list, const std::string& host) {
  const auto short_name = [](const std::string& name) { return name.substr(0, name.find('.')); };
  const std::vector<std::string> nodes = expand_node_list(node_list);
  return std::any_of(nodes.begin(), nodes.end(),
                     [&](const std::string& node) { return short_name(node) == short_name(host); });
}

Finding find_c10d(const Options& options) {
  const auto patience = std::min<Deadline::Duration>(kResolvePatience, options.rounds.join_timeout);
  HostElection election =
      elect_host(options, gather_endpoint_facts(options, Deadline::after(patience)));
  Finding finding;
  Head& head = finding.head;
  head.host = options.master_addr;
  head.addresses = std::move(election.addresses);
  head.port = options.master_port.value_or(0);
  head.reason = std::move(election.reason);
  head.patience = options.head_patience.value_or(kHeadPatience);
  if (election.role == HostElection::Role::kMember) {
    // It may be a second network's name of a node: not certain, but not worth waiting for long.
    const bool is_a_name = head.addresses != std::vector<std::string>{head.host};
    if (is_a_name && !options.step_nodes.empty() && !is_named_in(options.step_nodes, head.host)) {
      head.reason +=
          fmt::format(", and no name of this Slurm step's nodes, {}", options.step_nodes);
      head.patience = options.head_patience.value_or(kStrangerPatience);
    }
    return finding;
  }
  head.listener = listen_if_free(options, election.listen_address);
  if (head.listener) {
    head.port = base::local_port(head.listener.get());
  } else {
    // Another agent of this machine was faster; whether it is one, its answer will show.
    head.reason += ", and its port is held by another process here";
  }
  return finding;
}

Finding find_file(const Options& options, const std::string& run_id) {
  Finding finding;
  Head& head = finding.head;
  head.patience = options.head_patience.value_or(kHeadPatience);
  OwnAddress own;
  finding.file = std::make_shared<HeadFile>();
  const std::optional<HeadRecord> other = finding.file->claim(
      options.head_file,
      [&] {
        own = choose_own_address(options, gather_own_facts(options));
        head.listener = listen_in_range(own.listen_address, options.ports);
        return make_head_record(run_id, own.host, base::local_port(head.listener.get()));
      },
      Deadline::after(kResolvePatience));
  if (!other) {
    head.host = own.host;
    head.port = base::local_port(head.listener.get());
    head.addresses = {own.listen_address == "0.0.0.0" ? "127.0.0.1"
                      : own.listen_address == "::"    ? "::1"
                                                      : own.listen_address};
    head.reason = fmt::format("it came first to {}, and {}", options.head_file, own.reason);
    return finding;
  }
  if (other->run_id != run_id)
    throw Error(
        ErrorCode::kUsage,
        fmt::format("'{}' is in use by another job, '{}'", options.head_file, other->run_id),
        fmt::format("its head is {}; this is job '{}'", other->agent, run_id),
        "give each job a path of its own in --rdzv_endpoint");
  finding.file.reset();
  head.listener.reset();
  head.host = other->host;
  head.port = other->port;
  head.addresses = base::resolve_addresses(other->host);
  head.reason = fmt::format("{} came first to {}", other->agent, options.head_file);
  return finding;
}

// Runs one search at a time: on the loop where it waits for nobody, else beside it.
class SearchedMeetingPoint : public MeetingPoint {
 public:
  enum class Waits { kNever, kPerhaps };
  using Search = std::function<Finding()>;
  SearchedMeetingPoint(base::EventLoop& loop, Waits waits, Search search)
      : loop_(loop), waits_(waits), search_(std::move(search)) {}

  void find(Found found) override {
    if (waits_ == Waits::kNever)
      return loop_.post([search = search_, found = std::move(found)] { found(search().head); });
    call_ = std::make_unique<base::BackgroundCall>(
        loop_, [this, search = search_, found = std::move(found)] {
          const auto finding = std::make_shared<Finding>(search());
          return [this, finding, found] {
            if (finding->file) file_ = std::move(finding->file);
            found(std::move(finding->head));
          };
        });
  }

 private:
  base::EventLoop& loop_;
  const Waits waits_;
  Search search_;
  std::shared_ptr<HeadFile> file_;
  std::unique_ptr<base::BackgroundCall> call_;
};

// Of the static rendezvous: no name has to be looked up.
SearchedMeetingPoint::Waits waits_of(const Options& options) {
  const bool is_known =
      options.node_rank == 0 ? options.listener_fd.has_value() : !options.master_addresses.empty();
  const bool is_address = options.rounds.max_nodes == 1 && options.master_addr == "127.0.0.1";
  return options.local_addr.empty() && (is_known || is_address)
             ? SearchedMeetingPoint::Waits::kNever
             : SearchedMeetingPoint::Waits::kPerhaps;
}

}  // namespace

std::string Head::name() const {
  return base::HostPort{host, port}.to_string();
}

std::unique_ptr<MeetingPoint> make_meeting_point(base::EventLoop& loop, const LaunchPlan& plan) {
  // Copies: a search that is given up may outlive everything.
  using Waits = SearchedMeetingPoint::Waits;
  const auto searched = [&](auto search, Waits waits = Waits::kPerhaps) {
    return std::make_unique<SearchedMeetingPoint>(loop, waits, [search, options = plan.options] {
      // Checked first, so that an error is reported before other agents wait for this one.
      std::string local_address;
      if (!options.local_addr.empty())
        local_address = choose_own_address(options, gather_own_facts(options)).listen_address;
      Finding finding = search(options);
      finding.head.local_address = std::move(local_address);
      return finding;
    });
  };
  switch (plan.options.rendezvous) {
    case Rendezvous::kStatic:
      return searched(find_static, waits_of(plan.options));
    case Rendezvous::kFile:
      return searched(
          [run_id = plan.run_id](const Options& options) { return find_file(options, run_id); });
    case Rendezvous::kEtcd:
      return make_elected_meeting_point(loop, plan);
    case Rendezvous::kC10d:
      break;
  }
  return searched(find_c10d);
}

std::string who_hosts(const Head& head) {
  if (!head.is_here())
    return fmt::format("joins the rendezvous at {}: {}", head.name(), head.reason);
  return fmt::format("hosts the rendezvous at {}, listening on {}: {}", head.name(),
                     base::local_address(head.listener.get()), head.reason);
}

}  // namespace dtrun::launcher
