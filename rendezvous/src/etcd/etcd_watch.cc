#include "etcd/etcd_watch.h"

#include <poll.h>

#include <algorithm>
#include <boost/json/serialize.hpp>

#include "dtrun/base/base64.h"
#include "dtrun/base/json.h"

namespace dtrun::rendezvous {
namespace {

namespace json = boost::json;
using base::Deadline;
using base::Error;
using base::ErrorCode;

// A member that is stopped keeps its connections and says nothing: after so long a silence it is
// asked whether it lives.
constexpr auto kSilence = std::chrono::seconds(10);

bool readable(int fd) {
  pollfd look{fd, POLLIN, 0};
  return ::poll(&look, 1, 0) > 0;
}

}  // namespace

EtcdWatch::EtcdWatch(EtcdClient& client, const std::vector<EtcdKeys>& keys, std::int64_t from)
    : client_(client) {
  for (const EtcdKeys& range : keys) ranges_.push_back({range, from});
}

void EtcdWatch::open(Deadline deadline) {
  // Several requests in one body, one line each.
  std::string body;
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    json::object create{{"key", base::to_base64(ranges_[i].keys.first)},
                        {"start_revision", std::to_string(ranges_[i].from)},
                        {"watch_id", std::to_string(i + 1)},
                        // Lines of bounded length, however many changes there are to tell.
                        {"fragment", true}};
    if (!ranges_[i].keys.end.empty()) create["range_end"] = base::to_base64(ranges_[i].keys.end);
    body += json::serialize(json::object{{"create_request", std::move(create)}}) + "\n";
  }
  stream_ = client_.open_stream("/v3/watch", body, deadline);
  heard_ = Deadline::Clock::now();
}

EtcdWatch::News EtcdWatch::next(Deadline deadline, int wake_fd) {
  std::optional<News> news;
  while (!news) {
    // Where the client has left a member, that member had not answered.
    if (stream_.connection && stream_.member != client_.member()) stream_.connection.reset();
    if (!stream_.connection) open(deadline);
    const Deadline silence = Deadline::at(heard_ + kSilence);
    try {
      const std::optional<std::string> line =
          stream_.connection->next_line(silence.earlier(deadline), wake_fd);
      if (!line) return {};
      heard_ = Deadline::Clock::now();
      news = take(*line);
      if (news) backoff_.reset();
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kTimeout) {
        if (deadline.expired()) return {};
        client_.probe(deadline);
        heard_ = Deadline::Clock::now();
        continue;
      }
      if (error.code() != ErrorCode::kConnection && error.code() != ErrorCode::kProtocol) throw;
      stream_.connection.reset();
      // To open it may take long: first what woke us.
      if (wake_fd >= 0 && readable(wake_fd)) return {};
      // A member that has lost the others opens streams and ends them: the probe finds another.
      client_.interrupt().pause(Deadline::after(backoff_.next()).earlier(deadline));
      client_.probe(deadline);
    }
  }
  return std::move(*news);
}

// nullopt where the line tells of no change.
std::optional<EtcdWatch::News> EtcdWatch::take(const std::string& line) {
  const json::value value = base::parse_json(line, "a line of etcd's watch");
  const json::object empty;
  const json::object& result =
      value.is_object() ? etcd_object(value.get_object(), "result") : empty;
  if (result.empty())
    throw Error(ErrorCode::kConnection, "etcd has ended the watch", line.substr(0, 200));
  if (etcd_integer(result, "compact_revision") != 0) return News{{}, true};
  if (etcd_flag(result, "canceled"))
    throw Error(ErrorCode::kConnection, "etcd has ended the watch",
                etcd_text(result, "cancel_reason"));
  News news;
  news.events = read_etcd_events(result);
  if (news.events.empty()) return std::nullopt;
  const std::int64_t id = etcd_integer(result, "watch_id");
  if (id < 1 || static_cast<std::size_t>(id) > ranges_.size())
    throw Error(ErrorCode::kProtocol, "etcd tells of a watch that was not asked for");
  Range& range = ranges_[static_cast<std::size_t>(id - 1)];
  // A stream that was opened again repeats changes that have been reported already.
  std::erase_if(news.events,
                [&](const EtcdEvent& event) { return event.pair.mod_revision < range.from; });
  // The next fragment may have more of this fragment's last revision.
  const std::int64_t next = etcd_flag(result, "fragment") ? 0 : 1;
  for (const EtcdEvent& event : news.events)
    range.from = std::max(range.from, event.pair.mod_revision + next);
  if (news.events.empty()) return std::nullopt;
  return news;
}

}  // namespace dtrun::rendezvous
