# Run by `cmake -P`: writes OUTPUT, which defines page_files() with the bytes of every file.
#
# FILES: "path of the request=file", a list. Bytes become string literals, which compilers read faster
# than arrays; hexadecimal, so that no byte means anything to them.
cmake_minimum_required(VERSION 3.25)

set(type_html "text/html; charset=utf-8")
set(type_css "text/css; charset=utf-8")
set(type_js "text/javascript; charset=utf-8")

set(literals "")
set(table "")
set(index 0)
foreach(entry IN LISTS FILES)
  if(NOT entry MATCHES "^(/[^=]*)=(.+[.](html|css|js))$")
    message(FATAL_ERROR "EmbedPage.cmake: '${entry}' is not /path=file with .html, .css or .js")
  endif()
  set(path "${CMAKE_MATCH_1}")
  set(file "${CMAKE_MATCH_2}")
  set(type "${type_${CMAKE_MATCH_3}}")
  file(READ "${file}" bytes HEX)
  string(LENGTH "${bytes}" digits)
  math(EXPR length "${digits} / 2")
  if(length EQUAL 0)
    message(FATAL_ERROR "EmbedPage.cmake: '${file}' is empty")
  endif()
  string(REPEAT "[0-9a-f]" 64 line)
  string(REGEX REPLACE "(${line})" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" bytes "${bytes}")
  string(REGEX REPLACE "\n$" "" bytes "${bytes}")
  string(REPLACE "\n" "\"\n    \"" bytes "${bytes}")
  string(APPEND literals "constexpr char kFile${index}[] =\n    \"${bytes}\";\n\n")
  string(APPEND table "    {\"${path}\", \"${type}\", {kFile${index}, ${length}}},\n")
  math(EXPR index "${index} + 1")
endforeach()

file(WRITE "${OUTPUT}.new" "// Made by metrics/cmake/EmbedPage.cmake from metrics/page and dygraphs; do not edit.
#include \"page.h\"

namespace remora::metrics {

namespace {

${literals}constexpr PageFile kFiles[] = {
${table}};

}  // namespace

std::span<const PageFile> page_files() { return kFiles; }

}  // namespace remora::metrics
")
file(RENAME "${OUTPUT}.new" "${OUTPUT}")
