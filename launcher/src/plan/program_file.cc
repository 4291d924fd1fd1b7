#include "plan/program_file.h"

#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>
#include <vector>

#include "dtrun/base/unique_fd.h"
#include "dtrun/rendezvous/program_note.h"

namespace dtrun::launcher {
namespace {

using Header = ElfW(Ehdr);
using Segment = ElfW(Phdr);
using Note = ElfW(Nhdr);

// Real programs have a dozen segments, and less than 1 KiB of notes in each of a few.
constexpr std::size_t kMostSegments = 256, kMostNoteSegments = 16, kMostNoteBytes = 64 << 10;

// False where the file has not so many there.
bool read_at(int fd, std::uint64_t offset, void* to, std::size_t size) {
  return offset <= std::numeric_limits<off_t>::max() &&
         ::pread(fd, to, size, static_cast<off_t>(offset)) == static_cast<ssize_t>(size);
}

bool is_for_this_machine(const Header& header) {
  constexpr unsigned char kClass = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
  constexpr unsigned char kOrder =
      std::endian::native == std::endian::little ? ELFDATA2LSB : ELFDATA2MSB;
  return std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == kClass &&
         header.e_ident[EI_DATA] == kOrder && header.e_phentsize == sizeof(Segment) &&
         header.e_phnum <= kMostSegments;
}

bool contains_note(std::string_view notes, std::uint64_t alignment,
                   const rendezvous::ProgramNote& wanted) {
  const auto padded = [alignment](std::uint64_t size) {
    return (size + alignment - 1) / alignment * alignment;
  };
  Note note;
  while (notes.size() >= sizeof note) {
    if (notes.size() >= sizeof wanted && std::memcmp(notes.data(), &wanted, sizeof wanted) == 0)
      return true;
    std::memcpy(&note, notes.data(), sizeof note);
    // Of numbers of 32 bits.
    const std::uint64_t size =
        padded(padded(sizeof note + std::uint64_t{note.n_namesz}) + note.n_descsz);
    if (size > notes.size()) return false;
    notes.remove_prefix(size);
  }
  return false;
}

}  // namespace

bool presents_store_token(const std::string& path) {
  // Opened without blocking: the path may be a pipe.
  const base::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  Header header;
  if (!fd || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      !read_at(fd.get(), 0, &header, sizeof header) || !is_for_this_machine(header))
    return false;
  std::vector<Segment> segments(header.e_phnum);
  if (!read_at(fd.get(), header.e_phoff, segments.data(), segments.size() * sizeof segments[0]))
    return false;
  std::size_t looked_at = 0;
  for (const Segment& segment : segments) {
    if (segment.p_type != PT_NOTE || segment.p_filesz > kMostNoteBytes) continue;
    if (++looked_at > kMostNoteSegments) return false;
    std::string notes(segment.p_filesz, '\0');
    const std::uint64_t alignment = segment.p_align == 8 ? 8 : 4;
    if (read_at(fd.get(), segment.p_offset, notes.data(), notes.size()) &&
        contains_note(notes, alignment, rendezvous::kPresentsStoreToken))
      return true;
  }
  return false;
}

}  // namespace dtrun::launcher
