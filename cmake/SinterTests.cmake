# C++ tests lie beside their sources as foo_test.cpp.

# Appends the sources under `folder` to one list and the tests to the other.
function(sinter_glob sources tests folder)
  file(GLOB_RECURSE found CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${folder}/*.cpp")
  set(found_tests ${found})
  list(FILTER found_tests INCLUDE REGEX "_test\\.cpp$")
  list(FILTER found EXCLUDE REGEX "_(test|bench)\\.cpp$")
  set(${sources} ${${sources}} ${found} PARENT_SCOPE)
  set(${tests} ${${tests}} ${found_tests} PARENT_SCOPE)
endfunction()

# GoogleTest is compiled with our own flags, so that sanitizers see all of it. Its sources come from the Python
# environment (requirements/test.txt) or from Debian's googletest package; a built GoogleTest is the last choice.
function(sinter_find_gtest)
  if(TARGET sinter_gtest)
    return()
  endif()
  sinter_python(prefix "import sys; print(sys.prefix)")
  find_path(SINTER_GTEST_DIR NAMES src/gtest-all.cc NO_DEFAULT_PATH
    PATHS "${prefix}/src/gtest_vendor" /usr/src/googletest/googletest /usr/src/gtest)
  if(SINTER_GTEST_DIR)
    add_library(sinter_gtest STATIC "${SINTER_GTEST_DIR}/src/gtest-all.cc" "${SINTER_GTEST_DIR}/src/gtest_main.cc")
    target_include_directories(sinter_gtest SYSTEM PUBLIC "${SINTER_GTEST_DIR}/include")
    target_include_directories(sinter_gtest PRIVATE "${SINTER_GTEST_DIR}")
    target_link_libraries(sinter_gtest PUBLIC Threads::Threads PRIVATE sinter_options)
    target_compile_options(sinter_gtest PRIVATE -w)
    return()
  endif()
  find_package(GTest QUIET)
  if(NOT GTest_FOUND)
    message(FATAL_ERROR "GoogleTest is missing: run `make setup` (it brings the sources into .venv), or install your "
      "distribution's package (Debian, Ubuntu: apt-get install googletest), or configure with -DSINTER_BUILD_TESTS=OFF.")
  endif()
  add_library(sinter_gtest INTERFACE)
  target_link_libraries(sinter_gtest INTERFACE GTest::gtest GTest::gtest_main)
endfunction()

function(sinter_add_tests name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  sinter_find_gtest()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE sinter_options ${arg_LINK} sinter_gtest)
  if(TARGET sinter::torch AND "sinter::torch" IN_LIST arg_LINK)
    set_target_properties(${name} PROPERTIES BUILD_RPATH "${torch_dir}/lib")
  endif()
  add_test(NAME ${name} COMMAND ${name})
endfunction()
