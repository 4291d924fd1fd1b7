// Loading: each rank reads what it needs into memory of its own and verifies it. When all ranks
// have, the state takes it over.
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "checkpoint/agreement_of.h"
#include "checkpoint/chunk_reads.h"
#include "checkpoint/flat_state.h"
#include "checkpoint/foreign_shard.h"
#include "checkpoint/rank_message.h"
#include "checkpoint/read_manifest.h"
#include "checkpoint/shared_reads.h"
#include "dtrun/base/error.h"
#include "dtrun/dtensor/checkpoint/checkpoint.h"
#include "dtrun/tensor/ops.h"

namespace dtrun::dtensor::dcp {

using base::Error;
using base::ErrorCode;
using tensors::LocalTensor;

namespace {

/// A tensor of the state that is filled.
struct Target {
  std::string name;
  Tensor tensor;
  const SavedTensor* saved;
  Box box;             ///< of this rank
  LocalTensor staged;  ///< what was read, in the checkpoint's dtype
};

/// What is restored of an entry.
struct EntryLoad {
  Stateful* part;
  Loaded loaded;
  std::vector<std::size_t> targets;
};

std::string text_of(tensors::DType dtype, const Shape& shape) {
  return std::string(tensors::dtype_short_name(dtype)) + tensors::shape_to_string(shape);
}

/// The first few, and how many more there are.
std::string some_names(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kMost); ++i)
    text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kMost) text += fmt::format(" and {} more", names.size() - kMost);
  return text;
}

/// @return false: they have to be copied
bool takes_contents(const LocalTensor& own, const LocalTensor& staged) {
  const bool is_all_of_its_storage = own.is_contiguous() && own.offset() == 0 &&
                                     own.storage()->bytes() == staged.storage()->bytes();
  return is_all_of_its_storage && own.dtype() == staged.dtype() &&
         own.storage()->exchange_contents(*staged.storage());
}

/// One load, on one rank.
class Loading {
 public:
  Loading(const std::string& folder, const State& state, const LoadOptions& options,
          Agreement& agreement, FileCalls& files)
      : folder_(folder), state_(state), options_(options), agreement_(agreement), files_(files) {}

  LoadReport run() {
    open();
    const std::vector<std::string> wanted = together(agreement_, [&] {
      choose();
      return to_text(own_wishes());
    });
    share(wanted);
    together(agreement_, [&]() -> std::string {
      read();
      return "";
    });
    together(agreement_, [&]() -> std::string {
      write();
      return "";
    });
    report_.folder = folder_;
    report_.generation = manifest_.generation;
    return report_;
  }

 private:
  void open() {
    const std::vector<std::string> generations = together(agreement_, [&] {
      manifest_ = options_.source == Source::checkpoint ? read_manifest(files_, folder_)
                                                        : read_foreign_folder(files_, folder_);
      return std::to_string(manifest_.generation);
    });
    for (std::size_t rank = 1; rank < generations.size(); ++rank) {
      if (generations[rank] != generations[0])
        throw Error(
            ErrorCode::kDisagreement,
            fmt::format("rank {} finds another checkpoint in {} than rank 0", rank, folder_),
            "it was replaced meanwhile, or their file systems are not the same one",
            "a folder that all nodes share");
    }
  }

  /// The checkpoint's name for a name of the state.
  std::string saved_name(const std::string& name) const {
    const auto whole = options_.rename.find(name);
    if (whole != options_.rename.end()) return whole->second;
    for (const auto& [from, to] : options_.rename) {
      if (from.ends_with('.') && name.starts_with(from)) return to + name.substr(from.size());
    }
    return name;
  }

  void choose() {
    const nn::Module::NamedTensors parameters = parameters_of(state_);
    const std::vector<std::string> names = state_names();
    for (const State::Entry& entry : state_.entries()) {
      const std::string begin = entry.name.empty() ? "" : entry.name + ".";
      std::vector<std::string> own;
      for (const std::string& name : names) {
        if (name == entry.name) own.emplace_back("");
        if (name.starts_with(begin) && name.size() > begin.size())
          own.push_back(name.substr(begin.size()));
      }
      choose_of(entry, own, parameters);
    }
    if (!report_.missing.empty() && !options_.allow_missing)
      throw Error(ErrorCode::kInvalidArgument, folder_ + " lacks " + some_names(report_.missing),
                  "the state has more than was saved, or under other names",
                  "dtrun-ckpt inspect lists what is there; LoadOptions has rename, only and "
                  "allow_missing");
  }

  /// The checkpoint's tensors, by the names that the state has for them.
  std::vector<std::string> state_names() const {
    std::map<std::string, std::string> back;
    for (const auto& [from, to] : options_.rename) back[to] = from;
    std::vector<std::string> names;
    for (const SavedTensor& tensor : manifest_.tensors) {
      std::string name = tensor.name;
      const auto whole = back.find(name);
      if (whole != back.end()) {
        name = whole->second;
      } else {
        for (const auto& [to, from] : back) {
          if (!from.ends_with('.') || !name.starts_with(to)) continue;
          name = from + name.substr(to.size());
          break;
        }
      }
      names.push_back(name);
    }
    std::ranges::sort(names);
    return names;
  }

  /// An entry of which a name is not chosen, or is missing and may be, is not restored.
  void choose_of(const State::Entry& entry, const std::vector<std::string>& names,
                 const nn::Module::NamedTensors& parameters) {
    EntryLoad load{entry.part.get(), {}, {}};
    bool is_whole = true, is_wanted = false;
    for (const auto& [name, tensor] : entry.part->targets(names, parameters)) {
      const std::string full = full_name(entry.name, name);
      if (!is_chosen(full, options_.only)) {
        is_whole = false;
        continue;
      }
      is_wanted = true;
      const SavedTensor* const saved = manifest_.find(saved_name(full));
      load.loaded.tensors.insert(name, tensor);
      if (saved == nullptr) {
        report_.missing.push_back(full);
        is_whole = false;
        continue;
      }
      load.targets.push_back(targets_.size());
      targets_.push_back(target_of(full, tensor, *saved));
    }
    // Values of either kind are found alike.
    const auto choose_values = [&](const Values& own, const auto& saved, auto& taken) {
      for (const auto& [name, value] : own) {
        const std::string full = full_name(entry.name, name);
        if (!is_chosen(full, options_.only)) {
          is_whole = false;
          continue;
        }
        is_wanted = true;
        const auto found = saved.find(saved_name(full));
        if (found == saved.end()) {
          report_.missing.push_back(full);
          is_whole = false;
          continue;
        }
        check_kinds(full, found->second, value);
        taken[name] = found->second;
      }
    };
    const Saved now = entry.part->saved(parameters);
    choose_values(now.values, manifest_.values, load.loaded.values);
    choose_values(now.rank_values, manifest_.rank_values, load.loaded.rank_values);
    load.loaded.rank = agreement_.rank();
    load.loaded.ranks = agreement_.size();
    // Of tensors that are filled in place, some are enough.
    if (!is_whole) load.part = nullptr;
    if (is_wanted) entries_.push_back(std::move(load));
  }

  void check_kinds(const std::string& name, const std::vector<Value>& saved,
                   const Value& own) const {
    for (const Value& one : saved) check_kinds(name, one, own);
  }
  void check_kinds(const std::string& name, const Value& saved, const Value& own) const {
    if (saved.index() != own.index())
      throw Error(ErrorCode::kInvalidArgument,
                  "\"" + name + "\" is " + value_text(saved) + " in " + folder_,
                  "the state has " + value_text(own) + ", a value of another kind",
                  "a value of the kind that was saved");
  }

  Target target_of(const std::string& name, const Tensor& tensor, const SavedTensor& saved) const {
    if (!tensor.defined())
      throw Error(ErrorCode::kInvalidArgument, "\"" + name + "\" of the state is undefined",
                  "what is loaded is written to a tensor of the saved shape",
                  "make it before, with empty(), or take it out of the state");
    const TensorPart part = part_of_tensor(name, tensor);
    const bool loses =
        tensors::is_floating_point(saved.dtype) && !tensors::is_floating_point(part.dtype);
    if (saved.shape != part.shape || loses)
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("\"{}\" is {} in {}", saved.name, text_of(saved.dtype, saved.shape), folder_),
          fmt::format("the state has {}", text_of(part.dtype, part.shape)),
          "a state of the same sizes");
    const Box none{saved.shape, Shape(saved.shape.size(), 0)};
    return {name, tensor, &saved, part.box ? *part.box : none,
            part.box ? tensors::empty(part.box->shape, {.dtype = saved.dtype}) : LocalTensor()};
  }

  std::vector<Wish> own_wishes() const {
    std::vector<Wish> wishes;
    for (const Target& target : targets_) {
      if (target.staged.defined())
        wishes.push_back(
            {static_cast<std::size_t>(target.saved - manifest_.tensors.data()), target.box});
    }
    return wishes;
  }

  /// Among the ranks that share memory.
  void share(const std::vector<std::string>& wanted) {
    const collectives::ProcessGroup* const group = agreement_.carrier();
    if (group == nullptr) return;
    const std::vector<int> machines = group->machines();
    if (machines.size() < 2) return;
    together(agreement_, [&]() -> std::string {
      const auto own = static_cast<std::size_t>(group->rank());
      wishes_.resize(machines.size());
      for (std::size_t rank = 0; rank < machines.size(); ++rank) {
        if (machines[rank] == machines[own]) wishes_[rank] = parse_wishes(wanted[rank]);
      }
      std::vector<char*> memory;
      for (const Target& target : targets_) {
        if (target.staged.defined()) memory.push_back(static_cast<char*>(target.staged.data()));
      }
      shared_.emplace(manifest_, wishes_, std::move(memory), *group);
      return "";
    });
  }

  /// What this rank reads for itself alone of a chunk.
  void add_reads(const Target& target, std::size_t chunk, std::vector<ChunkRead>& reads) const {
    const auto tensor = static_cast<std::size_t>(target.saved - manifest_.tensors.data());
    ChunkRead read{target.saved, &target.saved->chunks[chunk], target.box,
                   static_cast<char*>(target.staged.data())};
    const auto parts = shared_parts_.find({tensor, chunk});
    if (parts != shared_parts_.end()) {
      for (const SharedPart* const part : parts->second) {
        read.end = part->begin;
        if (read.begin < read.end) reads.push_back(read);
        read.begin = part->end;
      }
      read.end = ~std::uint64_t{0};
    }
    reads.push_back(read);
  }

  void read() {
    // What a replicated tensor's first reader brings to the page cache, the others find there,
    // unless they share what they read.
    const bool is_read_once = agreement_.size() == 1 || shared_;
    const PageCache cache = is_read_once ? PageCache::passed_by : PageCache::used;
    if (shared_) {
      report_.own_bytes = shared_->run(files_, folder_, cache);
      for (const SharedPart& part : shared_->parts())
        shared_parts_[{part.tensor, part.chunk}].push_back(&part);
    }
    std::vector<ChunkRead> reads;
    for (const Target& target : targets_) {
      if (!target.staged.defined()) continue;
      for (std::size_t chunk = 0; chunk < target.saved->chunks.size(); ++chunk)
        add_reads(target, chunk, reads);
    }
    report_.own_bytes += read_chunks(files_, folder_, manifest_, reads, cache);
  }

  void write() {
    for (Target& target : targets_) {
      if (!target.staged.defined()) continue;
      const LocalTensor own = target.tensor.local();
      own.storage()->count_write();
      if (!takes_contents(own, target.staged)) own.copy_(target.staged.to(own.device()));
      target.staged = LocalTensor();
    }
    for (const EntryLoad& load : entries_) {
      if (load.part != nullptr) load.part->restore(load.loaded);
    }
  }

  const std::string& folder_;
  const State& state_;
  const LoadOptions& options_;
  Agreement& agreement_;
  FileCalls& files_;
  Manifest manifest_;
  std::vector<Target> targets_;
  std::vector<EntryLoad> entries_;
  std::vector<std::vector<Wish>> wishes_;  ///< by rank, of those that share what they read
  std::optional<SharedReads> shared_;
  /// Of a tensor's chunk, in order.
  std::map<std::pair<std::size_t, std::size_t>, std::vector<const SharedPart*>> shared_parts_;
  LoadReport report_;
};

}  // namespace

LoadReport load(const std::string& folder, const State& state, const LoadOptions& options) {
  SystemFileCalls system;
  const std::unique_ptr<Agreement> own = agreement_of(options.group, options.agreement);
  const std::string path = checked_folder(folder);
  return Loading(path, state, options, own ? *own : *options.agreement,
                 options.files != nullptr ? *options.files : system)
      .run();
}

}  // namespace dtrun::dtensor::dcp
