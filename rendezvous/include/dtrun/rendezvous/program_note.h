// ProgramNote: an ELF note in a program's file that says what the program can do as a rank. The
// runtime that is linked into the program writes it; the launcher reads it before the program runs.
// A note, because linkers keep it when they drop unused sections (--gc-sections), strip leaves it,
// and the program headers say where it is.
#pragma once

#include <cstdint>

namespace dtrun::rendezvous {

/// As it lies in the section .note.dtrun: a header (ElfW(Nhdr)), a name, and nothing more.
struct ProgramNote {
  std::uint32_t name_bytes = 6;  ///< with its 0
  std::uint32_t more_bytes = 0;
  std::uint32_t type = 0;
  char name[8] = "dtrun";
};

/// Its store's client presents DTRUN_STORE_TOKEN.
inline constexpr ProgramNote kPresentsStoreToken{.type = 1};

}  // namespace dtrun::rendezvous
