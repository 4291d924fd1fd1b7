#include "verdict/elf_symbols.h"

#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "dtrun/base/unique_fd.h"

namespace dtrun::launcher {
namespace {

/// A table that is larger is not read.
constexpr std::uint64_t kMostTableBytes = std::uint64_t{256} << 20;

class ElfFile {
 public:
  explicit ElfFile(const std::string& path)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    struct stat status {};
    if (!fd_ || ::fstat(fd_.get(), &status) != 0 || !S_ISREG(status.st_mode)) return;
    size_ = static_cast<std::uint64_t>(status.st_size);
    const std::vector<Elf64_Ehdr> headers = read<Elf64_Ehdr>(0, sizeof(Elf64_Ehdr));
    if (headers.empty()) return;
    const Elf64_Ehdr& header = headers.front();
    const bool is_known = std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
                          header.e_ident[EI_CLASS] == ELFCLASS64 &&
                          header.e_shentsize == sizeof(Elf64_Shdr);
    if (is_known && header.e_phentsize == sizeof(Elf64_Phdr))
      segments_ = read<Elf64_Phdr>(header.e_phoff, header.e_phnum * sizeof(Elf64_Phdr));
    if (is_known) sections_ = read<Elf64_Shdr>(header.e_shoff, header.e_shnum * sizeof(Elf64_Shdr));
  }

  const std::vector<Elf64_Phdr>& segments() const { return segments_; }
  /// All symbols, or those that it exports where it is stripped.
  const Elf64_Shdr* symbol_table() const {
    const Elf64_Shdr* exported = nullptr;
    for (const Elf64_Shdr& section : sections_) {
      if (section.sh_type == SHT_SYMTAB) return &section;
      if (section.sh_type == SHT_DYNSYM) exported = &section;
    }
    return exported;
  }
  const Elf64_Shdr* section(std::uint32_t index) const {
    return index < sections_.size() ? &sections_[index] : nullptr;
  }

  /// Empty: it does not lie within the file.
  template <typename T>
  std::vector<T> read(std::uint64_t offset, std::uint64_t bytes) const {
    if (bytes > kMostTableBytes || offset > size_ || bytes > size_ - offset) return {};
    std::vector<T> items(bytes / sizeof(T));
    const std::size_t wanted = items.size() * sizeof(T);
    const ssize_t n = ::pread(fd_.get(), items.data(), wanted, static_cast<off_t>(offset));
    return n == static_cast<ssize_t>(wanted) ? items : std::vector<T>();
  }

 private:
  base::UniqueFd fd_;
  std::uint64_t size_ = 0;
  std::vector<Elf64_Phdr> segments_;
  std::vector<Elf64_Shdr> sections_;
};

}  // namespace

std::uint64_t address_in_file(const std::string& file, std::uint64_t offset) {
  const ElfFile elf(file);
  for (const Elf64_Phdr& segment : elf.segments())
    if (segment.p_type == PT_LOAD && offset >= segment.p_offset &&
        offset - segment.p_offset < segment.p_filesz)
      return offset - segment.p_offset + segment.p_vaddr;
  return offset;
}

std::string demangled(const std::string& name) {
  if (!name.starts_with("_Z")) return name;
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 && text ? text.get() : name;
}

std::vector<std::string> functions_at(const std::string& file,
                                      const std::vector<std::uint64_t>& offsets) {
  std::vector<std::string> names(offsets.size());
  const ElfFile elf(file);
  const Elf64_Shdr* const table = elf.symbol_table();
  const Elf64_Shdr* const strings = table != nullptr ? elf.section(table->sh_link) : nullptr;
  if (strings == nullptr) return names;
  std::vector<char> text = elf.read<char>(strings->sh_offset, strings->sh_size);
  if (text.empty()) return names;
  text.back() = '\0';
  for (const Elf64_Sym& symbol : elf.read<Elf64_Sym>(table->sh_offset, table->sh_size)) {
    if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_name >= text.size()) continue;
    for (std::size_t i = 0; i < offsets.size(); ++i)
      if (offsets[i] >= symbol.st_value && offsets[i] - symbol.st_value < symbol.st_size)
        names[i] = demangled(&text[symbol.st_name]);
  }
  return names;
}

}  // namespace dtrun::launcher
