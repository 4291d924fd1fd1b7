// FlightRecord: the last operations of ranks, as a file: what dtrun writes of a node's ranks when a
// job fails, and what dtrun-explain reads. docs/flight_recorder.md describes the JSON; this header
// and its .cc are its only writer and reader. Pure, but for reading a file and the job page.
#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dtrun/rendezvous/job_page.h"

namespace dtrun::rendezvous {

enum class FlightState : std::uint8_t { running, done, failed };

/// Global ranks of a group, in its order: first, first + stride, ..., or as they are listed.
struct FlightMembers {
  int first = 0;
  int stride = 0;
  int count = 0;  ///< 0: not known, or listed
  std::vector<int> listed;

  /// Empty: not known, or more than `most`, which a rank has written wildly.
  std::vector<int> all(int most) const;
  bool operator==(const FlightMembers&) const = default;
};

/// One collective or message of one rank. Texts may be empty where the writer did not know them.
struct FlightOperation {
  std::string name;   ///< "all_reduce"
  std::string group;  ///< the group's name
  /// Counts the group's collectives, or its messages, from 1.
  std::uint64_t sequence = 0;
  FlightState state = FlightState::running;
  std::string call_site;  ///< "train.cc:212"
  std::string dtype;
  std::string reduce_op;  ///< empty where nothing is reduced
  std::uint64_t elements = 0;
  std::uint64_t bytes = 0;
  int root = -1;         ///< group rank; -1: none
  int waiting_for = -1;  ///< global rank; -1: nobody in particular
  FlightMembers members;
  std::uint32_t members_hash = 0;  ///< tells groups of one name apart; 0: not known
  double started = 0;              ///< seconds since the epoch; 0: not known
  std::optional<double> ended;     ///< none: it runs, or has never started

  bool is_message() const { return name == "send" || name == "recv"; }
};

/// A rank of another node that waits in an operation to which a rank has not come.
struct RemoteWait {
  int rank = -1;
  std::string name;
  std::string group;
  std::uint64_t sequence = 0;
  double since = 0;  ///< seconds since the epoch
};

struct RankFlight {
  int rank = -1;
  int pid = 0;
  std::string state;        ///< "in_collective"
  int victim_of = -1;       ///< the rank whose failure this one has reported; -1: none
  std::uint64_t begun = 0;  ///< operations; the last ones of them follow
  std::vector<FlightOperation> operations;  ///< oldest first
  /// Of a living page only: a rank of another node waits for this one.
  std::optional<RemoteWait> awaited = {};
};

struct FlightRecord {
  std::string job;     ///< the run's id
  int node = 0;        ///< the node's number
  int round = 0;       ///< "attempt" in the names of log folders
  int world_size = 0;  ///< 0: not known
  double written = 0;  ///< seconds since the epoch
  std::string cause;   ///< why the round has ended; empty: it has not
  std::vector<RankFlight> ranks;
};

/// What the ranks of this page show at this moment. The page says nothing of job, node and round.
FlightRecord read_flight(const JobPage& page);

std::string to_json(const FlightRecord& record);
/// @param source names the text in errors. @throws Error kProtocol for what is none
FlightRecord flight_record_of(const boost::json::value& document, const std::string& source);

std::string_view flight_state_name(FlightState state);

}  // namespace dtrun::rendezvous
