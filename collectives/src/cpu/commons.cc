#include "commons.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <new>

#include "dtrun/base/check.h"
#include "dtrun/base/error.h"

namespace dtrun::collectives::cpu {

struct Commons::Header {
  static constexpr std::uint64_t kMagic = 0x6d6f436e75727444;  // "DtrunCom"

  std::uint64_t magic = kMagic;
  std::uint64_t layout = 0;
  std::uint64_t ranks = 0;
  std::uint64_t tensor_span = 0;  ///< of each rank; 0: there is none
  alignas(128) std::atomic<std::uint64_t> cpus[kCpuWords] = {};
};

namespace {

constexpr std::size_t kPage = 4096;

constexpr std::size_t round_up(std::size_t value) {
  return (value + kPage - 1) / kPage * kPage;
}

// Ranks of different builds must not look into each other's memory: the sizes of all that lies
// there tell most of them apart.
constexpr std::uint64_t kLayout = sizeof(Cell) | sizeof(GroupTable) << 16 |
                                  std::uint64_t{sizeof(MemberLine)} << 40 | std::uint64_t{6} << 56;

std::size_t table_offset(std::size_t header_bytes, std::size_t ranks) {
  return round_up(header_bytes) + round_up(ranks * sizeof(Cell));
}

std::size_t front_bytes(std::size_t header_bytes, std::size_t ranks, GroupTable::Posts posts) {
  return table_offset(header_bytes, ranks) + round_up(GroupTable::bytes(ranks, posts));
}

// Whoever makes a file beyond its limit gets SIGXFSZ.
bool may_span(std::size_t bytes) {
  rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur >= bytes;
}

}  // namespace

CommonsSpan::CommonsSpan(int fd, std::size_t begin, std::size_t bytes, Access access)
    : bytes_(bytes) {
  const int protection = access == Access::read ? PROT_READ : PROT_READ | PROT_WRITE;
  void* const address =
      ::mmap(nullptr, bytes, protection, MAP_SHARED | MAP_NORESERVE, fd, static_cast<off_t>(begin));
  if (address == MAP_FAILED)
    throw base::system_error("map a rank's shared memory",
                             "raise the limit of virtual memory (ulimit -v)");
  data_ = static_cast<std::byte*>(address);
  // A core dump of the owner has it. That of another rank would read every page, used or not.
  if (access == Access::read) ::madvise(address, bytes, MADV_DONTDUMP);
}

CommonsSpan::~CommonsSpan() {
  ::munmap(data_, bytes_);
}

Commons Commons::create(int ranks) {
  const auto count = static_cast<std::size_t>(ranks);
  const std::size_t front = front_bytes(sizeof(Header), count, GroupTable::Posts::all);
  const std::size_t heaps = front + count * kHeapSpan;
  const std::size_t tensor_span = may_span(heaps + count * kTensorSpan) ? kTensorSpan : 0;
  Commons commons(base::SharedMemory::reserve("dtrun-heap", heaps + count * tensor_span, front));
  // New memory is zeroed, as new posts are: so they need not be written, nor memory be there.
  commons.commit(0, front_bytes(sizeof(Header), count, GroupTable::Posts::none));
  auto* header = new (commons.front_.data()) Header();
  header->layout = kLayout;
  header->ranks = count;
  header->tensor_span = tensor_span;
  for (int rank = 0; rank < ranks; ++rank) new (&commons.cell(rank)) Cell();
  GroupTable::make_at(reinterpret_cast<std::byte*>(&commons.root_table()), count,
                      GroupTable::Posts::none, 1);
  return commons;
}

Commons Commons::open(base::UniqueFd fd, int ranks) {
  const auto count = static_cast<std::size_t>(ranks);
  const std::size_t front = front_bytes(sizeof(Header), count, GroupTable::Posts::all);
  struct stat status {};
  std::uint64_t first[4] = {};
  // Read before it is mapped: a mapping of something shorter would end in SIGBUS.
  const bool ours = ::fstat(fd.get(), &status) == 0 &&
                    ::pread(fd.get(), first, sizeof(first), 0) == sizeof(first) &&
                    first[0] == Header::kMagic && first[1] == kLayout;
  if (!ours || first[2] != count ||
      static_cast<std::size_t>(status.st_size) != front + count * (kHeapSpan + first[3]))
    throw base::Error(
        base::ErrorCode::kProtocol, "the shared memory of this machine's ranks cannot be read",
        ours ? fmt::format("it is for {} ranks, and this one counts {}", first[2], ranks)
             : "a rank of another build of dtrun has made it",
        "run the same build on all ranks, with the same WORLD_SIZE");
  return Commons(base::SharedMemory::map(std::move(fd), front));
}

Commons::Header& Commons::header() const {
  return *std::launder(reinterpret_cast<Header*>(front_.data()));
}

Cell& Commons::cell(int world_rank) const {
  return reinterpret_cast<Cell*>(front_.data() +
                                 round_up(sizeof(Header)))[static_cast<std::size_t>(world_rank)];
}

GroupTable& Commons::root_table() const {
  return *reinterpret_cast<GroupTable*>(front_.data() +
                                        table_offset(sizeof(Header), header().ranks));
}

void Commons::commit_posts(int world_rank) const {
  for (const Lane lane : {Lane::prompt, Lane::bulk}) {
    const std::size_t stride = GroupTable::post_stride(lane);
    const Post* const own =
        root_table().posts(lane) + static_cast<std::size_t>(world_rank) * stride;
    const std::ptrdiff_t begin = reinterpret_cast<const std::byte*>(own) - front_.data();
    commit(static_cast<std::size_t>(begin), stride * sizeof(Post));
  }
}

std::atomic<std::uint64_t>* Commons::cpus() const {
  return header().cpus;
}

std::size_t Commons::heap_offset(int world_rank) const {
  return front_.size() + static_cast<std::size_t>(world_rank) * kHeapSpan;
}

std::size_t Commons::tensors_offset(int world_rank) const {
  if (header().tensor_span == 0)
    throw base::Error(base::ErrorCode::kSystem, "there is no shared memory for tensors",
                      "where the first rank of this machine was started, files may not be so large",
                      "raise the limit of file sizes (ulimit -f) before the job starts");
  const std::size_t heaps = header().ranks * kHeapSpan;
  return front_.size() + heaps + static_cast<std::size_t>(world_rank) * kTensorSpan;
}

}  // namespace dtrun::collectives::cpu
