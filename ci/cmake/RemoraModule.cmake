# Functions that every folder's CMakeLists.txt uses: one target a module, no global flags.
include(GNUInstallDirs)

# A build of tests links most programs that no user links by LLD, where it is installed: in a third of the time.
# -B: where g++ finds it.
set(REMORA_QUICK_LINKS "")
if(REMORA_QUICK_TEST_BUILD)
  find_program(REMORA_LLD NAMES ld.lld PATHS /usr/lib/llvm-14/bin)
  if(REMORA_LLD)
    cmake_path(GET REMORA_LLD PARENT_PATH lld_folder)
    set(REMORA_QUICK_LINKS -fuse-ld=lld "-B${lld_folder}")
  endif()
endif()

# Warnings are private to our own sources and never installed.
add_library(remora_warnings INTERFACE)
target_compile_options(remora_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wnon-virtual-dtor
  -Woverloaded-virtual -Wnull-dereference
  # False at -O3 for "literal" + std::string (GCC bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  # clang 19 tells of libstdc++ 12's own std::stable_sort; g++ shows what we use ourselves. The
  # sanitizers' presets name a warning that only g++ has.
  "$<$<CXX_COMPILER_ID:Clang>:-Wthread-safety;-Wno-deprecated-declarations;-Wno-unknown-warning-option>"
  $<$<BOOL:${REMORA_WARNINGS_AS_ERRORS}>:-Werror>)

# remora_add_module(NAME [SOURCES ...] [HEADERS ...] [PUBLIC targets...] [PRIVATE targets...])
# Makes the library remora_NAME (alias remora::NAME). HEADERS are relative to include/ of the folder;
# each is compiled alone by the target all_verify_interface_header_sets.
function(remora_add_module name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;HEADERS;PUBLIC;PRIVATE")
  set(target remora_${name})
  add_library(${target} ${arg_SOURCES})
  add_library(remora::${name} ALIAS ${target})
  list(TRANSFORM arg_HEADERS PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/include/")
  target_sources(${target} PUBLIC FILE_SET HEADERS
    BASE_DIRS "${CMAKE_CURRENT_SOURCE_DIR}/include" FILES ${arg_HEADERS})
  target_include_directories(${target} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}/src")
  target_compile_features(${target} PUBLIC cxx_std_20)
  # Our own calls are to our own functions, also in a shared library: they may be inlined.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fno-semantic-interposition>)
  target_link_libraries(${target} PUBLIC ${arg_PUBLIC}
    PRIVATE ${arg_PRIVATE} $<BUILD_INTERFACE:remora_warnings>)
  set_target_properties(${target} PROPERTIES
    EXPORT_NAME ${name}
    CXX_EXTENSIONS OFF
    POSITION_INDEPENDENT_CODE ON
    VISIBILITY_INLINES_HIDDEN ON
    VERIFY_INTERFACE_HEADER_SETS ${PROJECT_IS_TOP_LEVEL})
  # A plugin that links a static library of ours exports none of it: two plugins in one process, of
  # two versions maybe, each run their own copy.
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "STATIC_LIBRARY")
    set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET hidden)
  endif()
  install(TARGETS ${target} EXPORT remora COMPONENT development
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endfunction()

# remora_add_executable(NAME SOURCES ... LIBRARIES ...): a program of ours, with our warnings.
function(remora_add_executable name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES")
  add_executable(${name} ${arg_SOURCES})
  target_compile_features(${name} PRIVATE cxx_std_20)
  set_target_properties(${name} PROPERTIES CXX_EXTENSIONS OFF)
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES} remora_warnings)
endfunction()

# remora_quick_target(TARGET...): nothing of it is on the data path, so that a quick build does not optimise it,
# but for sources with options of their own.
function(remora_quick_target)
  if(REMORA_QUICK_BUILD)
    foreach(target IN LISTS ARGN)
      target_compile_options(${target} PRIVATE -O0)
    endforeach()
  endif()
endfunction()

# remora_join(TARGET NAME SOURCES...): in a unity build these sources of TARGET are one unit, and no other
# source is in it: for those that include headers which the others must not see.
function(remora_join target name)
  if(NOT CMAKE_UNITY_BUILD)
    return()
  endif()
  list(TRANSFORM ARGN REPLACE "(.+)" "#include \"${CMAKE_CURRENT_SOURCE_DIR}/\\1\"" OUTPUT_VARIABLE lines)
  list(JOIN lines "\n" text)
  set(unit "${CMAKE_CURRENT_BINARY_DIR}/${target}_${name}.cc")
  file(CONFIGURE OUTPUT "${unit}" CONTENT "${text}\n" @ONLY)
  set_source_files_properties(${ARGN} PROPERTIES HEADER_FILE_ONLY ON)
  set_source_files_properties("${unit}" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_sources(${target} PRIVATE "${unit}")
endfunction()

# remora_add_counted_program(NAME SOURCES ... LIBRARIES ...): its instructions are counted. Always
# optimised, whatever the tree is, and each source by itself; linked as users link, since where the linker
# puts things counts.
function(remora_add_counted_program name)
  remora_add_executable(${name} ${ARGN})
  target_compile_options(${name} PRIVATE -O2)
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF LINK_OPTIONS "")
endfunction()

# remora_discover_tests(PROGRAM LABELS label [FILTER f] [GATE f] [ALONE f] [TIMEOUT s] [ENVIRONMENT ...])
# Every case of a GoogleTest program that FILTER (of GoogleTest's form, without negative patterns) takes
# as a CTest test of its own; those that GATE matches too wait for the second tier, by the label gate.
# Those of ALONE never share a process with others (ci/suites.py), by the label alone.
# The name of a case is its own: values of parameters would be printed as bytes, other ones in each run.
function(remora_discover_tests program)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "LABELS;FILTER;GATE;ALONE;TIMEOUT;LIST" "ENVIRONMENT")
  if(NOT arg_FILTER)
    set(arg_FILTER "*")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  set(fast "${arg_FILTER}")
  set(others ${arg_GATE} ${arg_ALONE})
  if(others)
    list(JOIN others ":" others)
    string(APPEND fast "-${others}")
  endif()
  set(environment "")
  if(arg_ENVIRONMENT)
    string(REPLACE ";" "\\;" escaped "${arg_ENVIRONMENT}")
    set(environment ENVIRONMENT "${escaped}")
  endif()
  if(arg_ALONE)
    gtest_discover_tests(${program} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 NO_PRETTY_VALUES
      TEST_FILTER "${arg_ALONE}" TEST_LIST ${program}${arg_LIST}_alone
      PROPERTIES LABELS alone TIMEOUT ${arg_TIMEOUT} ${environment})
  endif()
  if(arg_GATE)
    gtest_discover_tests(${program} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 NO_PRETTY_VALUES
      TEST_FILTER "${arg_GATE}" TEST_LIST ${program}${arg_LIST}_gate
      PROPERTIES LABELS gate TIMEOUT ${arg_TIMEOUT} ${environment})
  endif()
  gtest_discover_tests(${program} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 NO_PRETTY_VALUES
    TEST_FILTER "${fast}" TEST_LIST ${program}${arg_LIST}_fast
    PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} ${environment})
endfunction()

# remora_add_test(NAME SOURCES ... LIBRARIES ... [LABELS label] [GATE f] [ALONE f] [ENVIRONMENT ...])
# A GoogleTest program; every case is a CTest test of its own. The label rxe marks what needs a device.
function(remora_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT;GATE;ALONE;LABELS" "SOURCES;LIBRARIES;ENVIRONMENT")
  if(NOT arg_LABELS)
    set(arg_LABELS native)
  endif()
  remora_add_executable(${name} SOURCES ${arg_SOURCES} LIBRARIES ${arg_LIBRARIES} GTest::gmock GTest::gtest_main)
  remora_discover_tests(${name} LABELS "${arg_LABELS}" GATE "${arg_GATE}" ALONE "${arg_ALONE}"
    TIMEOUT "${arg_TIMEOUT}" ENVIRONMENT ${arg_ENVIRONMENT})
endfunction()

# remora_add_device_profiles(PROGRAM FILTER f [WITHOUT profile f]...)
# The cases that FILTER takes once more under each profile of tests/unit/verbs/device_profiles.h, all of
# a profile as one CTest test: PROGRAM.device.PROFILE. WITHOUT leaves out, under one profile, cases that
# need what such a device lacks.
function(remora_add_device_profiles program)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "FILTER" "WITHOUT")
  foreach(profile mlx5 mlx5-no-atomics bnxt_re bnxt_re-no-windows irdma efa rxe)
    set(filter "${arg_FILTER}")
    list(FIND arg_WITHOUT ${profile} at)
    if(NOT at EQUAL -1)
      math(EXPR at "${at} + 1")
      list(GET arg_WITHOUT ${at} without)
      string(FIND "${filter}" "-" negative)
      if(negative EQUAL -1)
        string(APPEND filter "-${without}")
      else()
        string(APPEND filter ":${without}")
      endif()
    endif()
    add_test(NAME ${program}.device.${profile} COMMAND ${program} --gtest_brief=1 "--gtest_filter=${filter}")
    set_tests_properties(${program}.device.${profile} PROPERTIES LABELS native TIMEOUT 120
      ENVIRONMENT "REMORA_TEST=1;REMORA_TEST_DEVICE=${profile}")
  endforeach()
endfunction()
