# Install, export and package files: find_package(remora) and pkg-config remora.
#
# What a consumer must find is read off the targets themselves, so that it cannot be forgotten: a
# module that links something not in the table below stops the configuration here, not a user's.
include(CMakePackageConfigHelpers)

# remora::remora is what most programs link: the engine, and through it the rest.
add_library(remora_remora INTERFACE)
add_library(remora::remora ALIAS remora_remora)
set_target_properties(remora_remora PROPERTIES EXPORT_NAME remora)
install(TARGETS remora_remora EXPORT remora COMPONENT development)

set(REMORA_COMPONENTS "")
foreach(component IN ITEMS result verbs config metrics engine c volume)
  if(TARGET remora_${component})
    list(APPEND REMORA_COMPONENTS ${component})
    # c is a copy of the others, for programs that are not C++; volume brings libcurl.
    if(NOT component MATCHES "^(c|volume)$")
      target_link_libraries(remora_remora INTERFACE remora::${component})
    endif()
  endif()
endforeach()

# _remora_external(TARGET FIND PC_REQUIRES PC_LIBS): a third party that our libraries may link.
# FIND is what remora-config.cmake says to get it, the rest what remora-*.pc says.
function(_remora_external target find requires libs)
  set_property(GLOBAL PROPERTY "REMORA_FIND_${target}" "${find}")
  set_property(GLOBAL PROPERTY "REMORA_REQUIRES_${target}" "${requires}")
  set_property(GLOBAL PROPERTY "REMORA_LIBS_${target}" "${libs}")
  set_property(GLOBAL APPEND PROPERTY REMORA_EXTERNAL "${target}")
endfunction()
_remora_external(tl::expected "find_dependency(tl-expected)" "" "")
_remora_external(Threads::Threads "find_dependency(Threads)" "" "-pthread")
_remora_external(TBB::tbb "find_dependency(TBB)" "tbb" "")
_remora_external(yaml-cpp "find_dependency(yaml-cpp)" "yaml-cpp" "")
_remora_external(yaml-cpp::yaml-cpp "find_dependency(yaml-cpp)" "yaml-cpp" "")
_remora_external(prometheus-cpp::core "find_dependency(prometheus-cpp)" "prometheus-cpp-core" "")
_remora_external(protobuf::libprotobuf "find_dependency(Protobuf)" "protobuf" "")
_remora_external(protobuf::libprotobuf-lite "find_dependency(Protobuf)" "protobuf-lite" "")
# No header of ours names these two: their defines are of no use to a consumer, and would change
# what its own copy of them is. So pkg-config is told their libraries, not their packages.
_remora_external(spdlog::spdlog "find_dependency(spdlog)" "" "-lspdlog -lfmt")
_remora_external(PkgConfig::CPP_HTTPLIB "_remora_find_pkg(CPP_HTTPLIB cpp-httplib)" ""
  "-lcpp-httplib")
_remora_external(fmt::fmt "find_dependency(fmt)" "fmt" "")
_remora_external(nlohmann_json::nlohmann_json "find_dependency(nlohmann_json)" "" "")
_remora_external(OpenSSL::Crypto "find_dependency(OpenSSL)" "libcrypto" "")
_remora_external(OpenSSL::SSL "find_dependency(OpenSSL)" "libssl" "")
_remora_external(CURL::libcurl "find_dependency(CURL)" "libcurl" "")
_remora_external(ZLIB::ZLIB "find_dependency(ZLIB)" "zlib" "")

# Sets `result` to the targets that `target` hands on to targets that link it, ours and others'.
# A static library hands on its private ones too, as $<LINK_ONLY:...>.
function(_remora_links target result)
  get_target_property(links ${target} INTERFACE_LINK_LIBRARIES)
  set(found "")
  foreach(link IN LISTS links)
    string(REGEX REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1" link "${link}")
    if(NOT link MATCHES "^\\$<BUILD_INTERFACE:|^::@|NOTFOUND$" AND NOT link STREQUAL "")
      list(APPEND found "${link}")
    endif()
  endforeach()
  list(REMOVE_DUPLICATES found)
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

# For each component: its own components (in _remora_parts_*), and what is others'.
set(_remora_used "")
foreach(component IN LISTS REMORA_COMPONENTS)
  set(_remora_parts_${component} "")
  set(_remora_requires_${component} "")
  set(_remora_libs_${component} "")
  get_target_property(_type remora_${component} TYPE)
  if(NOT _type STREQUAL "INTERFACE_LIBRARY")
    get_target_property(_name remora_${component} OUTPUT_NAME)
    if(NOT _name)
      set(_name remora_${component})
    endif()
    set(_remora_libs_${component} "-L\${libdir} -l${_name}")
  endif()
  _remora_links(remora_${component} _links)
  foreach(link IN LISTS _links)
    if(link MATCHES "^remora(::|_)([a-z]+)$" AND CMAKE_MATCH_2 IN_LIST REMORA_COMPONENTS)
      list(APPEND _remora_parts_${component} ${CMAKE_MATCH_2})
      continue()
    endif()
    get_property(_known GLOBAL PROPERTY REMORA_EXTERNAL)
    if(link MATCHES "^PkgConfig::(.+)$" AND NOT link IN_LIST _known)
      set(_prefix ${CMAKE_MATCH_1})
      if(NOT ${_prefix}_MODULE_NAME)
        message(FATAL_ERROR "${link}: pkg_check_modules(${_prefix} ...) must name exactly one module")
      endif()
      _remora_external(${link} "_remora_find_pkg(${_prefix} ${${_prefix}_MODULE_NAME})"
        ${${_prefix}_MODULE_NAME} "")
    elseif(NOT link IN_LIST _known)
      message(FATAL_ERROR "remora_${component} links '${link}', and ci/cmake/RemoraInstall.cmake "
        "does not know how a consumer finds it: add a line with _remora_external there")
    endif()
    list(APPEND _remora_used ${link})
    list(APPEND _remora_users_${link} ${component})
    get_property(_requires GLOBAL PROPERTY "REMORA_REQUIRES_${link}")
    get_property(_libs GLOBAL PROPERTY "REMORA_LIBS_${link}")
    list(APPEND _remora_requires_${component} ${_requires})
    string(APPEND _remora_libs_${component} " ${_libs}")
  endforeach()
endforeach()
list(REMOVE_DUPLICATES _remora_used)

# _remora_closure_X: X and every component it needs. Components come in dependency order.
foreach(component IN LISTS REMORA_COMPONENTS)
  set(_remora_closure_${component} ${component})
  foreach(part IN LISTS _remora_parts_${component})
    list(APPEND _remora_closure_${component} ${_remora_closure_${part}})
  endforeach()
  list(REMOVE_DUPLICATES _remora_closure_${component})
endforeach()

# The part of remora-config.cmake that finds others' packages, each only where a component asks.
set(REMORA_FIND_DEPENDENCIES "")
foreach(link IN LISTS _remora_used)
  set(_users "")
  foreach(component IN LISTS REMORA_COMPONENTS)
    foreach(user IN LISTS _remora_users_${link})
      if(user IN_LIST _remora_closure_${component})
        list(APPEND _users ${component})
      endif()
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES _users)
  list(JOIN _users "|" _users)
  get_property(_find GLOBAL PROPERTY "REMORA_FIND_${link}")
  string(APPEND REMORA_FIND_DEPENDENCIES
    "if(_remora_wanted MATCHES \"(^|;)(${_users})(;|\$)\")  # ${link}\n  ${_find}\nendif()\n")
endforeach()

set(REMORA_CMAKE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/remora")
configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/remora-config.cmake.in"
  "${PROJECT_BINARY_DIR}/package/remora-config.cmake" INSTALL_DESTINATION "${REMORA_CMAKE_DIR}")
# Before 1.0 a minor version may break: 0.2 does not stand in for 0.1.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/package/remora-config-version.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/package/remora-config.cmake"
  "${PROJECT_BINARY_DIR}/package/remora-config-version.cmake"
  DESTINATION "${REMORA_CMAKE_DIR}" COMPONENT development)
install(EXPORT remora NAMESPACE remora:: FILE remora-targets.cmake
  DESTINATION "${REMORA_CMAKE_DIR}" COMPONENT development)

# pkg-config: one file a component, and remora.pc over them. Static libraries need everything they
# were made from at every link, so plain `pkg-config --libs remora` says it, not only --static.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set(REMORA_PC_PREFIX "${CMAKE_INSTALL_PREFIX}")
  set(REMORA_PC_LIBDIR "${CMAKE_INSTALL_LIBDIR}")
else()  # relative to the .pc file, so that the tree can be moved
  string(REGEX REPLACE "[^/]+" ".." _up "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
  set(REMORA_PC_PREFIX "\${pcfiledir}/${_up}")
  set(REMORA_PC_LIBDIR "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
endif()

function(_remora_pc name title requires private libs)
  list(REMOVE_DUPLICATES requires)
  list(REMOVE_DUPLICATES private)
  list(JOIN requires ", " REMORA_PC_REQUIRES)
  list(JOIN private ", " REMORA_PC_PRIVATE)
  string(STRIP "${libs}" REMORA_PC_LIBS)
  set(REMORA_PC_NAME "${name}")
  set(REMORA_PC_TITLE "${title}")
  configure_file("${PROJECT_SOURCE_DIR}/ci/cmake/remora.pc.in"
    "${PROJECT_BINARY_DIR}/package/${name}.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/package/${name}.pc"
    DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT development)
endfunction()

foreach(component IN LISTS REMORA_COMPONENTS)
  list(TRANSFORM _remora_parts_${component} PREPEND "remora-" OUTPUT_VARIABLE _parts)
  if(BUILD_SHARED_LIBS)
    _remora_pc(remora-${component} "Remora: ${component}"
      "${_parts}" "${_remora_requires_${component}}" "${_remora_libs_${component}}")
  else()
    _remora_pc(remora-${component} "Remora: ${component}"
      "${_parts};${_remora_requires_${component}}" "" "${_remora_libs_${component}}")
  endif()
endforeach()
set(_parts ${REMORA_COMPONENTS})
list(REMOVE_ITEM _parts c volume)
list(TRANSFORM _parts PREPEND "remora-")
list(REVERSE _parts)  # the engine first: a static linker wants users before what they use
_remora_pc(remora "${PROJECT_DESCRIPTION}" "${_parts}" "" "")

install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/NOTICE"
  "${PROJECT_SOURCE_DIR}/README.md" "${PROJECT_SOURCE_DIR}/CHANGELOG.md"
  DESTINATION "${CMAKE_INSTALL_DOCDIR}"
  COMPONENT development)
foreach(folder IN ITEMS verbs config metrics engine engine/c engine/volume apps apps/nbdkit apps/python)
  install(FILES "${PROJECT_SOURCE_DIR}/${folder}/README.md"
    DESTINATION "${CMAKE_INSTALL_DOCDIR}/${folder}" COMPONENT development)
  if(IS_DIRECTORY "${PROJECT_SOURCE_DIR}/${folder}/docs")
    install(DIRECTORY "${PROJECT_SOURCE_DIR}/${folder}/docs" COMPONENT development
      DESTINATION "${CMAKE_INSTALL_DOCDIR}/${folder}"
      FILES_MATCHING PATTERN "*.md" PATTERN "*.svg" PATTERN "*.json")
  endif()
endforeach()
# What an embedder begins with, also where the programs are not built.
install(DIRECTORY "${PROJECT_SOURCE_DIR}/apps/examples/" COMPONENT development
  DESTINATION "${CMAKE_INSTALL_DATADIR}/remora/examples"
  FILES_MATCHING PATTERN "*.cc" PATTERN "*.h" PATTERN "*.c" PATTERN "*.py")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/config/examples/" COMPONENT development
  DESTINATION "${CMAKE_INSTALL_DATADIR}/remora/config" FILES_MATCHING PATTERN "*.yaml")
