#include "output/console.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "dtrun/base/socket.h"
#include "output/json_line.h"

namespace dtrun::launcher {
namespace {

// Longer than the time between ranks that print the same line, and too short for a reader to
// notice.
constexpr auto kFoldWindow = std::chrono::milliseconds(80);

int ranks_that_are_shown(const LaunchPlan& plan) {
  const auto& shown = plan.options.output.shown_local_ranks;
  if (!shown) return plan.local_ranks;
  return static_cast<int>(
      std::count_if(shown->begin(), shown->end(), [&](int i) { return i < plan.local_ranks; }));
}

}  // namespace

Console::Console(base::EventLoop& loop, int fd, const LaunchPlan& plan)
    : plan_(plan),
      sink_(loop, fd),
      destination_(::isatty(fd) == 1 ? Destination::kTerminal : Destination::kOther),
      host_(base::host_name()),
      fold_(ranks_that_are_shown(plan), kFoldWindow),
      fold_timer_(loop) {
  if (!plan.options.output.control_codes) sink_.use_no_control_codes();
}

LineOrigin Console::line_origin(OutputOrigin origin, Stream stream) const {
  return {plan_.shown_node(origin.node_rank),
          host_,
          std::to_string(origin.rank),
          std::to_string(first_local_rank() + origin.local_rank),
          plan_.options.role,
          stream};
}

int Console::first_local_rank() const {
  return plan_.options.adopted ? plan_.options.adopted->local_rank : 0;
}

LineTime Console::now() const {
  return {std::chrono::system_clock::now(), std::chrono::steady_clock::now() - start_};
}

void Console::prepare(OutputOrigin origin, Stream stream, base::LineRelayOptions& options) {
  const OutputOptions& wish = plan_.options.output;
  if (wish.format == LineFormat::kJson) {
    options.put = json(origin, stream);
  } else if (wish.folding == Folding::kSameLines) {
    options.put = folded(origin, stream);
  } else {
    options.put = tagged(origin, stream);
    return;
  }
  options.beginnings = base::LineRelayOptions::Beginnings::kWithTheRest;
}

std::string Console::tag_text(const TagTemplate& tag, const LineOrigin& origin, int rank) const {
  const std::string text = tag.render(origin, now());
  return plan_.options.output.coloured(destination_) ? in_colour_of_rank(text, rank) : text;
}

Console::Bytes Console::tagged(OutputOrigin origin, Stream stream) {
  auto tag = plan_.options.output.tag(origin.local_rank, stream, destination_);
  if (!tag) return nullptr;
  const LineOrigin of_line = line_origin(origin, stream);
  // The tag of a line stands at its beginning, also after a rank whose output ended in none.
  const auto put = [this](TaggedLines& lines, std::string_view bytes, std::string_view text) {
    if (!lines.in_line()) sink_.end_line();
    sink_.put(lines.add(bytes, text));
  };
  if (tag->has_time())
    return [this, put, lines = TaggedLines(destination_), tag = std::move(*tag), of_line,
            rank = origin.rank](std::string_view bytes) mutable {
      put(lines, bytes, tag_text(tag, of_line, rank));
    };
  return [put, lines = TaggedLines(destination_), text = tag_text(*tag, of_line, origin.rank)](
             std::string_view bytes) mutable { put(lines, bytes, text); };
}

Console::Bytes Console::json(OutputOrigin origin, Stream stream) {
  return [this, lines = JsonLines(line_origin(origin, stream))](std::string_view bytes) mutable {
    sink_.put(lines.add(bytes, now()));
  };
}

Console::Bytes Console::folded(OutputOrigin origin, Stream stream) {
  first_ = {origin.node_rank, origin.rank - origin.local_rank, 0};
  tagged_.ranks.clear();
  Bytes whole = tagged(origin, stream);
  return [this, origin, stream, whole = std::move(whole),
          taker = LineFold::Taker([this](const LineFold::Line& line) { add_folded(line); }),
          in_line = false](std::string_view bytes) mutable {
    const LineFold::Time time = std::chrono::steady_clock::now();
    while (!bytes.empty()) {
      const auto newline = bytes.find('\n');
      const std::string_view line = bytes.substr(0, newline == bytes.npos ? newline : newline + 1);
      bytes.remove_prefix(line.size());
      if (!in_line && newline != bytes.npos) {
        fold_.add(origin.local_rank, stream, line, time);
        fold_.take(time, taker);
        continue;
      }
      // A piece of a long line, or the end of the stream.
      if (!in_line) end_folding();
      in_line = newline == line.npos;
      if (whole) {
        whole(line);
      } else {
        sink_.put(line);
      }
    }
    put_folded();
    put_when_due();
  };
}

std::string Console::tag_of_folded(const TagTemplate& tag, const LineFold::Line& line) const {
  LineOrigin origin = line_origin(first_, line.stream);
  origin.rank = describe_ranks(line.ranks, first_.rank);
  origin.local_rank = describe_ranks(line.ranks, first_local_rank());
  return line.ranks.size() == 1 ? tag_text(tag, origin, first_.rank + line.ranks[0])
                                : tag.render(origin, now());
}

// Most lines come from the same ranks as the one before.
void Console::add_folded(const LineFold::Line& line) {
  if (tags_differ_ || line.stream != tagged_.stream || line.ranks != tagged_.ranks) {
    const auto tag = plan_.options.output.tag(line.ranks[0], line.stream, destination_);
    tags_differ_ = tag && tag->has_time();
    tagged_.stream = line.stream;
    tagged_.ranks = line.ranks;
    folded_tag_ = tag ? tag_of_folded(*tag, line) : "";
  }
  folded_ += folded_tag_;
  folded_ += line.text;
}

void Console::put_folded() {
  sink_.put(folded_);
  folded_.clear();
}

void Console::put_when_due() {
  const auto next = fold_.next();
  if (!next) return fold_timer_.cancel();
  fold_timer_.start(base::Deadline::at(*next), [this] {
    fold_.take(std::chrono::steady_clock::now(),
               [this](const LineFold::Line& line) { add_folded(line); });
    put_folded();
    put_when_due();
  });
}

void Console::end_folding() {
  fold_timer_.cancel();
  fold_.take_all([this](const LineFold::Line& line) { add_folded(line); });
  put_folded();
}

}  // namespace dtrun::launcher
