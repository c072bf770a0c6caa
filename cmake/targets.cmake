# How the project's own targets are built: warnings, sanitizers, include root.
add_library(aitrace_options INTERFACE)
target_include_directories(aitrace_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(aitrace_options INTERFACE
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wno-missing-field-initializers
  $<$<BOOL:${AITRACE_WERROR}>:-Werror>
  -fstack-protector-strong)
target_compile_definitions(aitrace_options INTERFACE
  AITRACE_VERSION="${PROJECT_VERSION}")
if(AITRACE_SANITIZE)
  target_compile_options(aitrace_options INTERFACE
    -fsanitize=${AITRACE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  if(AITRACE_SANITIZE STREQUAL "thread")
    # Fences are not modelled; where one matters, tests/tsan.supp says why.
    target_compile_options(aitrace_options INTERFACE -Wno-tsan)
  endif()
  target_link_options(aitrace_options INTERFACE -fsanitize=${AITRACE_SANITIZE})
endif()

# aitrace_library(NAME SOURCES... DEPS targets...): a static library of one folder.
function(aitrace_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC aitrace_options ${ARG_DEPS})
endfunction()
