#include "options/completion.h"

#include <fmt/core.h>

#include "options/option_names.h"

namespace dtrun::launcher {
namespace {

// bash takes "--name=value" apart into three words, and "host:port" too.
constexpr std::string_view kFunction = R"(
# Into COMPREPLY: what the value of option $1 may be, where it begins with $2.
_dtrun_complete_value() {
    local kind
    kind=$(_dtrun_value "$1")
    case $kind in
        none) ;;
        file) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$2") ;;
        folder) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- "$2") ;;
        *) mapfile -t COMPREPLY < <(compgen -W "${kind#words}" -- "$2") ;;
    esac
}

_dtrun() {
    COMPREPLY=()
    local current=${COMP_WORDS[COMP_CWORD]} at=1 name ended=
    while ((at < COMP_CWORD)); do
        case ${COMP_WORDS[at]} in
            --) ((++at)); ended=yes; break ;;
            -?*)
                name=${COMP_WORDS[at]}
                if [[ ${COMP_WORDS[at + 1]} == = ]]; then
                    if ((at + 1 == COMP_CWORD)); then _dtrun_complete_value "$name" ""; return; fi
                    if ((at + 2 == COMP_CWORD)); then _dtrun_complete_value "$name" "$current"; return; fi
                    ((at += 3))
                    while [[ ${COMP_WORDS[at]} == : ]]; do ((at += 2)); done
                elif [[ $(_dtrun_demand "$name") == needed ]]; then
                    if ((at + 1 == COMP_CWORD)); then _dtrun_complete_value "$name" "$current"; return; fi
                    ((at += 2))
                    while [[ ${COMP_WORDS[at]} == : ]]; do ((at += 2)); done
                else
                    ((++at))
                fi ;;
            *) break ;;
        esac
    done
    if ((at < COMP_CWORD)); then
        if declare -F _comp_command_offset >/dev/null; then _comp_command_offset "$at"
        elif declare -F _command_offset >/dev/null; then _command_offset "$at"
        else compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$current")
        fi
    elif [[ -z $ended && $current == -* ]]; then
        local options=$_dtrun_options
        [[ ${current#--} == *-* && $current != *_* ]] && options=${options//_/-}
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$current")
        [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
    else
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -c -- "$current"; compgen -f -- "$current")
    fi
    return 0
}

complete -F _dtrun dtrun
# PyTorch's own torchrun is left alone.
for _dtrun_link in torchrun torch.distributed.launch; do
    [[ $(type -P "$_dtrun_link") -ef $(type -P dtrun) ]] && complete -F _dtrun "$_dtrun_link"
done
unset _dtrun_link
)";

// The name of the value in the help (FILE, FOLDER) tells whether files are completed.
std::string kind_of_value(const OptionRow& row) {
  if (row.value == nullptr) return "none";
  const std::string_view value = row.value;
  if (value == "FILE") return "file";
  if (value == "FOLDER") return "folder";
  std::string words;
  for (const std::string_view word : choices_of(row)) words += fmt::format(" {}", word);
  return words.empty() ? "none" : "words" + words;
}

bool is_offered(const OptionRow& row) {
  return row.group != OptionGroup::kHidden;
}

// A case of the shell: "--nproc_per_node" and "-t", with '-' made '_' before.
std::string pattern_of(const OptionRow& row) {
  std::string pattern = "__" + spelling_of(row).substr(2);
  if (row.letter != 0) pattern += fmt::format("|_{}", row.letter);
  return pattern;
}

}  // namespace

std::string bash_completion() {
  std::string options, values, demands;
  for (const OptionRow& row : option_table()) {
    if (!is_offered(row)) continue;
    const bool needed = demand_of(row) == ValueDemand::kNeeded;
    options +=
        fmt::format("{}{}{}", options.empty() ? "" : " ", spelling_of(row), needed ? "=" : "");
    values += fmt::format("        {}) echo {} ;;\n", pattern_of(row), kind_of_value(row));
    if (needed) demands += (demands.empty() ? "" : "|") + pattern_of(row);
  }
  return fmt::format(
      "# bash completion of dtrun, made by: dtrun --completion=bash\n\n_dtrun_options='{}'\n\n"
      "_dtrun_value() {{\n    case ${{1//-/_}} in\n{}    esac\n}}\n\n"
      "_dtrun_demand() {{\n    case ${{1//-/_}} in\n        {}) echo needed ;;\n    esac\n}}\n{}",
      options, values, demands, kFunction);
}

}  // namespace dtrun::launcher
