# cmake -DSOURCE=<tree> -DOUTPUT=<header> -P write_git_hash.cmake: the commit that is built, "" where git does not know.
# The header is touched only when it changes.
execute_process(COMMAND git -c safe.directory=* rev-parse --short=12 HEAD WORKING_DIRECTORY ${SOURCE}
  OUTPUT_VARIABLE hash OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(hash "")
endif()
file(WRITE ${OUTPUT}.new "#pragma once\n#define DTRUN_GIT_HASH \"${hash}\"\n")
file(COPY_FILE ${OUTPUT}.new ${OUTPUT} ONLY_IF_DIFFERENT)
