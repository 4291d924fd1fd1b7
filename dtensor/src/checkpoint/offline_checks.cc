// What offline.h finds out about checkpoints: damage, differences, and which may go.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <set>

#include "checkpoint/commit.h"
#include "checkpoint/flat_state.h"
#include "checkpoint/read_manifest.h"
#include "checkpoint/shard_file.h"
#include "dtrun/base/error.h"
#include "dtrun/base/log.h"
#include "dtrun/dtensor/checkpoint/offline.h"
#include "dtrun/dtensor/checkpoint/series.h"
#include "dtrun/tensor/ops.h"
#include "dtrun/tensor/safetensors_header.h"

namespace dtrun::dtensor::dcp {

using base::Error;
namespace log = base::log;
using tensors::LocalTensor;

namespace {

/// The elements of both that have other bits.
void add_difference(const std::string& a, const std::string& b, tensors::DType dtype,
                    TensorDifference& found) {
  if (a == b) return;
  const std::size_t item = tensors::item_size(dtype);
  const auto numbers = [&](const std::string& bytes) {
    const LocalTensor raw =
        tensors::empty({static_cast<std::int64_t>(bytes.size() / item)}, {.dtype = dtype});
    std::memcpy(raw.data(), bytes.data(), bytes.size());
    return raw.to_vector();
  };
  const std::vector<double> of_a = numbers(a), of_b = numbers(b);
  for (std::size_t i = 0; i < of_a.size(); ++i) {
    if (std::memcmp(a.data() + i * item, b.data() + i * item, item) == 0) continue;
    ++found.elements;
    const double apart = std::abs(of_a[i] - of_b[i]);
    if (apart > found.largest || std::isnan(apart)) found.largest = apart;
  }
}

std::string type_text(const SavedTensor& tensor) {
  return std::string(tensors::dtype_short_name(tensor.dtype)) +
         tensors::shape_to_string(tensor.shape);
}

TensorDifference difference_of(Archive& a, const SavedTensor& of_a, Archive& b,
                               const SavedTensor& of_b, std::uint64_t& done) {
  constexpr std::uint64_t kSlab = std::uint64_t{4} << 20;
  TensorDifference found{of_a.name, "", 0, 0};
  if (of_a.dtype != of_b.dtype || of_a.shape != of_b.shape) {
    found.text = type_text(of_a) + " and " + type_text(of_b);
    return found;
  }
  const std::size_t item = tensors::item_size(of_a.dtype);
  const Box whole{Shape(of_a.shape.size(), 0), of_a.shape};
  std::string left, right;
  for (const Box& slab : slabs_of(whole, item, kSlab)) {
    left.resize(static_cast<std::size_t>(tensors::numel(slab.shape)) * item);
    right.resize(left.size());
    a.read(of_a, slab, left.data());
    b.read(of_b, slab, right.data());
    add_difference(left, right, of_a.dtype, found);
    done += left.size();
  }
  if (found.elements > 0)
    found.text = fmt::format("{} of {} elements differ, by {} at most", found.elements,
                             tensors::numel(of_a.shape), found.largest);
  return found;
}

/// Whether the .safetensors header of a file says the same as the manifest.
std::string header_fault(FileCalls& files, const std::string& folder, const Manifest& manifest,
                         std::size_t index) {
  const SavedFile& saved = manifest.files[index];
  OpenFile file = OpenFile::open(files, path_in(folder, saved.name));
  std::string text(saved.header_bytes - tensors::kSafetensorsLengthBytes, '\0');
  file.read_at(tensors::kSafetensorsLengthBytes, text.data(), text.size());
  const tensors::SafetensorsHeader header =
      tensors::parse_safetensors_header(text, saved.bytes - saved.header_bytes, file.path());
  std::set<std::pair<std::string, std::uint64_t>> told, known;
  for (const tensors::SafetensorsEntry& entry : header.entries)
    told.emplace(entry.name, saved.header_bytes + entry.begin);
  for (const SavedTensor& tensor : manifest.tensors) {
    for (const SavedChunk& chunk : tensor.chunks) {
      if (chunk.file == index) known.emplace(tensor.name, chunk.begin);
    }
  }
  return told == known ? "" : saved.name + " has other tensors than the manifest tells";
}

}  // namespace

VerifyReport verify(const std::string& path, const OfflineOptions& options) {
  SystemFileCalls system;
  FileCalls& files = options.files != nullptr ? *options.files : system;
  Archive archive(files, path);
  VerifyReport report;
  report.has_checksums = archive.kind() == ArchiveKind::checkpoint;
  const Manifest& manifest = archive.manifest();
  std::set<std::size_t> bad_files;
  for (std::size_t i = 0; i < manifest.files.size() && report.has_checksums; ++i) {
    try {
      const ShardReader whole(files, path, manifest.files[i]);
      const std::string fault = header_fault(files, path, manifest, i);
      if (!fault.empty()) report.faults.push_back({"", fault});
    } catch (const Error& error) {
      report.faults.push_back({"", error.summary()});
      bad_files.insert(i);
    }
  }
  const std::uint64_t all = archive.bytes();
  for (const SavedTensor& tensor : manifest.tensors) {
    if (!is_chosen(tensor.name, options.only)) continue;
    for (const SavedChunk& chunk : tensor.chunks) {
      if (bad_files.contains(chunk.file)) {
        report.faults.push_back({tensor.name, "lies in " + manifest.files[chunk.file].name});
        continue;
      }
      try {
        archive.verify(tensor, chunk, [&](std::string_view bytes) {
          report.bytes += bytes.size();
          if (options.progress) options.progress(report.bytes, all);
        });
      } catch (const Error& error) {
        report.faults.push_back({tensor.name, error.summary()});
      }
    }
  }
  return report;
}

std::vector<TensorDifference> diff(Archive& a, Archive& b, const OfflineOptions& options) {
  std::vector<TensorDifference> all;
  std::uint64_t done = 0;
  for (const SavedTensor& of_a : a.manifest().tensors) {
    if (!is_chosen(of_a.name, options.only)) continue;
    const SavedTensor* const of_b = b.manifest().find(of_a.name);
    TensorDifference found = of_b == nullptr
                                 ? TensorDifference{of_a.name, "only in " + a.path(), 0, 0}
                                 : difference_of(a, of_a, b, *of_b, done);
    if (!found.text.empty()) all.push_back(std::move(found));
    if (options.progress) options.progress(done, a.bytes());
  }
  for (const SavedTensor& of_b : b.manifest().tensors) {
    if (is_chosen(of_b.name, options.only) && a.manifest().find(of_b.name) == nullptr)
      all.push_back({of_b.name, "only in " + b.path(), 0, 0});
  }
  for (const auto& [name, value] : a.manifest().values) {
    const auto other = b.manifest().values.find(name);
    if (!is_chosen(name, options.only)) continue;
    if (other == b.manifest().values.end()) {
      all.push_back({name, "only in " + a.path(), 0, 0});
    } else if (value_text(other->second) != value_text(value)) {
      all.push_back({name, value_text(value) + " and " + value_text(other->second), 0, 0});
    }
  }
  for (const auto& [name, value] : b.manifest().values) {
    if (is_chosen(name, options.only) && !a.manifest().values.contains(name))
      all.push_back({name, "only in " + b.path(), 0, 0});
  }
  return all;
}

std::vector<std::string> prunable(const std::string& folder, int keep, FileCalls& files) {
  const Series series(folder, {.keep = keep, .files = &files});
  std::vector<std::string> gone;
  if (keep == 0) return gone;
  int complete = 0;
  std::vector<std::int64_t> steps = series.steps();
  std::ranges::reverse(steps);
  for (const std::int64_t step : steps) {
    if (complete == keep) {
      if (may_be_removed(files, series.path(step))) {
        gone.push_back(series.path(step));
      } else {
        log::warning(log::Component::kDtensor, "{} stays: it is not a checkpoint alone",
                     series.path(step));
      }
      continue;
    }
    try {
      read_manifest(files, series.path(step));
      ++complete;
    } catch (const Error&) {
      // Damaged: another process may be looking at it. It goes when `keep` newer ones stand.
    }
  }
  if (!leads_to_folder(files, folder)) return gone;
  for (const std::string& name : names_in(files, folder)) {
    if (!is_partial_name(name, "")) continue;
    const std::string path = path_in(folder, name);
    try {
      // A file is that of a merge, and has no lock that says whether it goes on.
      if (!is_folder(files, path)) continue;
      OpenFile partial = OpenFile::open_folder(files, path);
      const Lock lock = partial.try_lock();
      if (lock == Lock::held) gone.push_back(path);
      if (lock == Lock::unsupported)
        log::warning(log::Component::kDtensor,
                     "{} stays: this file system has no locks that tell whether its save is under "
                     "way; when none is, rm -r removes it",
                     path);
    } catch (const Error& error) {
      log::warning(log::Component::kDtensor, "{} stays: {}", path, error.what());
    }
  }
  return gone;
}

// The name goes first, as in a series.
bool remove_checkpoint(const std::string& path, FileCalls& files) {
  if (is_partial_name(name_of(path), "")) {
    if (!is_folder(files, path)) return false;
    OpenFile own = OpenFile::open_folder(files, path);
    if (own.try_lock() != Lock::held) return false;
    remove_folder(files, path);
    return true;
  }
  if (!may_be_removed(files, path)) return false;
  const std::string hidden = partial_name(path, 0);
  if (files.rename(path, hidden) < 0) throw base::system_error("remove " + path);
  remove_folder(files, hidden);
  return true;
}

}  // namespace dtrun::dtensor::dcp
